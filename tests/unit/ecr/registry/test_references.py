"""Names of images in registries."""

import pytest

from berth.ecr.registry.references import Reference, parse
from berth.images.errors import UserError

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
def test_a_name_is_taken_apart_and_put_together(text: str, reference: Reference) -> None:
    assert parse(text) == reference
    assert str(reference) == text


def test_a_digest_beside_a_tag_is_what_counts() -> None:
    reference = parse(f"{ECR}/berth-train:1@{DIGEST}")
    assert reference.tag == "1"
    assert reference.version == DIGEST
    assert str(reference) == f"{ECR}/berth-train@{DIGEST}"


@pytest.mark.parametrize(
    "text",
    [
        "berth-train:cpu",
        "team/berth-train:cpu",
        "",
        f"{ECR}/Upper:1",
        f"{ECR}/a:b:c",
        f"{ECR}/a@sha256:12",
        "https://h.x/a",
    ],
)
def test_a_name_without_a_registry_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"names no image in a registry: write HOST/REPOSITORY"):
        parse(text)
