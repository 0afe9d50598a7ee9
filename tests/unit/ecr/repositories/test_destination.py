"""Destinations of a push, and problems of options and images, which are found without a request."""

import re
from dataclasses import replace

import pytest

from berth.ecr.registry.references import Reference
from berth.ecr.repositories.destination import (
    destinations,
    image_problems,
    immutable_problem,
    name_problems,
    option_problems,
    reference_problems,
    warnings,
)
from berth.ecr.repositories.names import EcrRegistry
from berth.images.local_image import LocalImage
from tests.doubles.local_image import local_image

OCI = "org.opencontainers.image"
LABELS = {f"{OCI}.version": "0.1.0", f"{OCI}.revision": "1a2b"}
DIRTY_LABELS = {**LABELS, f"{OCI}.revision": "1a2b-dirty"}
IMAGE, DIRTY = local_image(LABELS), local_image(DIRTY_LABELS)
MINE = local_image(LABELS, name="mytrain:1", derived=True)
MY_DIRTY = local_image(DIRTY_LABELS, name="mytrain:1", derived=True)
NO_REVISION = local_image({f"{OCI}.version": "0.1.0"})
SERVERLESS = 10 * 1024**3
DUBLIN, VIRGINIA = EcrRegistry("111122223333", "eu-west-1"), EcrRegistry("111122223333", "us-east-1")
HERE = "127.0.0.1:5000/berth-train"


def test_destinations_are_one_per_registry() -> None:
    assert [str(each) for each in destinations("train", [DUBLIN, VIRGINIA], None, None)] == [
        "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train",
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/berth-train",
    ]


def test_destination_in_another_registry_than_ecr() -> None:
    assert destinations("serve", [], "127.0.0.1:5000", "team/{image}") == [Reference("127.0.0.1:5000", "team/serve")]


@pytest.mark.parametrize(
    ("images", "host", "repository", "tags", "facts"),
    [
        (["train", "serve"], None, "team/berth", [], ["write {image} where the name differs"]),
        (["train"], None, "team/berth", [], []),
        (["train", "serve"], None, "team/{image}", ["1.0"], []),
        (["train", "serve"], None, "x/{foo}-{image}", [], ["--repository has {foo}, and only {image} stands for"]),
        (
            ["train", "serve"],
            "1.dkr.ecr.eu-west-1.amazonaws.com",
            "Team/{image}",
            ["a b", "-x"],
            ["'1' is not an AWS account", "'Team/train'", "'Team/serve'", "'a b'", "'-x'"],
        ),
        (["train"], "127.0.0.1:5000", "z", [], []),
        (["train"], None, "z", [], ["'z' is not allowed: ECR takes 2 to 256"]),
        (["train"], DUBLIN.host, "z", [], ["'z' is not allowed: ECR takes 2 to 256"]),
    ],
)
def test_name_problems(images: list[str], host: str | None, repository: str, tags: list[str], facts: list[str]) -> None:
    problems = name_problems(images, host, repository, tags)
    assert len(problems) == len(facts)
    assert [fact for fact in facts if not any(fact in problem for problem in problems)] == []


def test_length_limits_of_ecr_do_not_apply_elsewhere() -> None:
    assert reference_problems(Reference("127.0.0.1:5000", "z", "1")) == []
    problems = reference_problems(Reference(DUBLIN.host, "z", "-"))
    assert [problem.partition(" is ")[0] for problem in problems] == ["the repository name 'z'", "the tag '-'"]


def test_option_problems_reports_all_regions_and_accounts() -> None:
    assert option_problems(None, ["eu-west-1", "us-east-1"], ["111122223333"]) == []
    assert option_problems("127.0.0.1:5000", ["eu-west-1", "us-east1", ""], ["1"]) == [
        "'us-east1' is not a region that this boto3 knows, the nearest is us-east-1: give that, or, if the region is "
        "new, install a newer boto3 with `make lock setup`.",
        "'' is not a region that this boto3 knows, such as us-east-1: give one, or, if the region is new, install a "
        "newer boto3 with `make lock setup`.",
        "'1' is not an AWS account: give its number of 12 digits, leading zeros included.",
        "--registry 127.0.0.1:5000 can't be combined with --region or --account, which choose a registry in ECR: give "
        "one or the other.",
    ]


def test_ecr_options_are_refused_for_another_registry() -> None:
    assert (
        "--kms-key, --apply can only be set in ECR"
        in option_problems("127.0.0.1:5000", [], [], ["--kms-key", "--apply"])[0]
    )
    assert option_problems(DUBLIN.host, [], [], ["--kms-key"]) == []


@pytest.mark.parametrize(
    ("image", "tag", "ways"),
    [
        (IMAGE, "stable", ["another --tag", f"{HERE}@sha256:9"]),
        (IMAGE, IMAGE.push_tag, [f"{HERE}@sha256:9"]),
        (MINE, "1", ["docker tag mytrain:1"]),
    ],
    ids=["release", "build", "derived"],
)
def test_error_for_immutable_tag_names_alternatives(image: LocalImage, tag: str, ways: list[str]) -> None:
    problem = immutable_problem(HERE, tag, image, "sha256:9")
    assert f"{HERE}:{tag} names another image" in problem
    assert not [way for way in ways if way not in problem], problem
    assert ("--tag" in problem) == (tag == "stable")


def test_derived_image_is_pushed_under_its_own_name() -> None:
    assert (MINE.title, MINE.push_tag, MINE.build_name) == ("mytrain", "1", "mytrain:1")
    (place,) = destinations(MINE.title, [DUBLIN], None, None, derived=True)
    assert place.repository == "mytrain"
    (place,) = destinations(MINE.title, [DUBLIN], None, "team/{image}", derived=True)
    assert place.repository == "team/mytrain"


@pytest.mark.parametrize(
    ("image", "tags", "fact"),
    [
        (IMAGE, ["1.0"], None),
        (local_image({**LABELS, "berth.efa": "1.47.0+double"}), [], r"test's double of efa 1\.47\.0\+double"),
        (DIRTY, [], None),
        (DIRTY, ["1.0"], "commit, build again"),
        *((IMAGE, [tag], f"{tag} .*{IMAGE.push_tag}") for tag in ("build-0.1.0-cpu-000000000000", "build-mine")),
        (IMAGE, [IMAGE.push_tag, "0.1.0", "0.1.0-cpu", "rebuild-1"], None),
        (NO_REVISION, ["1.0"], None),
        (MINE, ["1.0"], None),
        (MY_DIRTY, [], None),
        (MY_DIRTY, ["1.0"], "^mytrain:1 contains uncommitted changes, so it can't be tagged 1.0: "),
        (replace(MINE, name="sha256:1a2b"), [], "has no name to push it by: .* with `docker tag sha256:1a2b NAME:TAG`"),
        (replace(MINE, name="mytrain:build-1"), [], "^mytrain:build-1 was built FROM a build, but its tag begins with"),
    ],
)
def test_image_problems(image: LocalImage, tags: list[str], fact: str | None) -> None:
    problems = image_problems(image, tags)
    assert len(problems) == (fact is not None)
    assert fact is None or re.search(fact, problems[0])


@pytest.mark.parametrize(
    ("image", "checkout", "facts"),
    [
        (NO_REVISION, "000000000000", [f"has no label {OCI}.revision"]),
        (local_image(LABELS, image="serve", Size=SERVERLESS), IMAGE.revision, []),
        (local_image(LABELS, image="serve", Size=SERVERLESS + 1), IMAGE.revision, ["endpoints accept at most 10.7"]),
        # A training job has no such limit.
        (local_image(LABELS, Size=SERVERLESS + 1), IMAGE.revision, []),
        (
            IMAGE,
            "000000000000",
            [
                f"{IMAGE.name} was built from {IMAGE.revision}, and this checkout is at 000000000000: to use",
                f"`python build.py build {IMAGE.image} --profile {IMAGE.profile}` first",
            ],
        ),
        (MINE, "another", []),
        (MY_DIRTY, "x", ["mytrain:1 was built FROM an image with uncommitted changes."]),
    ],
)
def test_warnings(image: LocalImage, checkout: str, facts: list[str]) -> None:
    found = warnings(image, checkout)
    assert len(found) == bool(facts)
    assert [fact for fact in facts if fact not in found[0]] == []
