"""Parsing names of images in registries."""

import pytest

from berth.common.errors import UserError
from berth.ecr.registry.references import Reference, parse

DIGEST = "sha256:" + "0" * 64
ECR = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (f"{ECR}/berth-train:0.1.0-cpu", Reference(ECR, "berth-train", "0.1.0-cpu")),
        (f"{ECR}/team/berth-train@{DIGEST}", Reference(ECR, "team/berth-train", digest=DIGEST)),
        ("127.0.0.1:5000/berth-serve", Reference("127.0.0.1:5000", "berth-serve")),
        ("localhost/berth-serve:1", Reference("localhost", "berth-serve", "1")),
        ("[::1]:5000/berth-serve:1", Reference("[::1]:5000", "berth-serve", "1")),
        ("registry:5000/a/b/c:1", Reference("registry:5000", "a/b/c", "1")),
    ],
)
def test_parse_and_format_references(text: str, reference: Reference) -> None:
    assert parse(text, "FROM") == reference
    assert str(reference) == text


def test_digest_takes_precedence_over_tag() -> None:
    reference = parse(f"{ECR}/berth-train:1@{DIGEST}", "FROM")
    assert reference.tag == "1"
    assert reference.version == DIGEST
    assert str(reference) == f"{ECR}/berth-train@{DIGEST}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("berth-train:cpu", "does not begin with a registry: write HOST/REPOSITORY, such as"),
        ("team/berth-train:cpu", "does not begin with a registry"),
        ("nonesuch", "does not begin with a registry"),
        ("", "does not begin with a registry"),
        (f"{ECR}/", "is only a registry: add the repository, HOST/REPOSITORY."),
        ("127.0.0.1:5000", "is only a registry"),
        ("https://h.x/a", "begins with https://: leave that out."),
        ("http://127.0.0.1:5000/a", "begins with http://: leave that out."),
        (f"{ECR}/a:", "has a colon without a tag after it: add one, or remove the colon."),
        (f"{ECR}/a@sha256:12", "has no digest after its @: a digest is sha256: and 64 digits of 0-9 and a-f."),
        (f"{ECR}/a:1@", "has no digest after its @"),
    ],
)
def test_error_for_invalid_reference_names_the_argument(text: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        parse(text, "TO")
    assert str(refusal.value).startswith(f"TO {text!r} {message}")
