"""Destinations of a push, and problems of options and images, which are found without a request."""

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
DUBLIN, VIRGINIA = EcrRegistry("111122223333", "eu-west-1"), EcrRegistry("111122223333", "us-east-1")
HERE = "127.0.0.1:5000/berth-train"


def test_destinations_are_one_per_registry() -> None:
    assert [str(each) for each in destinations("train", [DUBLIN, VIRGINIA], None, None)] == [
        "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth-train",
        "111122223333.dkr.ecr.us-east-1.amazonaws.com/berth-train",
    ]


def test_destination_in_another_registry_than_ecr() -> None:
    assert destinations("serve", [], "127.0.0.1:5000", "team/{image}") == [Reference("127.0.0.1:5000", "team/serve")]


def test_two_images_need_two_repository_names() -> None:
    assert "write {image} where the name differs" in name_problems(["train", "serve"], None, "team/berth", [])[0]
    assert name_problems(["train"], None, "team/berth", []) == []
    assert name_problems(["train", "serve"], None, "team/{image}", ["1.0"]) == []


def test_unknown_placeholder_is_refused() -> None:
    assert name_problems(["train", "serve"], None, "x/{foo}-{image}", []) == [
        "--repository has {foo}, and only {image} stands for something: train or serve."
    ]


def test_length_limits_of_ecr_do_not_apply_elsewhere() -> None:
    assert name_problems(["train"], "127.0.0.1:5000", "z", []) == []
    for host in (None, DUBLIN.host):
        assert "'z' is not allowed: ECR takes 2 to 256" in name_problems(["train"], host, "z", [])[0]
    assert reference_problems(Reference("127.0.0.1:5000", "z", "1")) == []
    problems = reference_problems(Reference(DUBLIN.host, "z", "-"))
    assert [problem.partition(" is ")[0] for problem in problems] == ["the repository name 'z'", "the tag '-'"]


def test_name_problems_are_reported_together() -> None:
    host = "1.dkr.ecr.eu-west-1.amazonaws.com"
    problems = name_problems(["train", "serve"], host, "Team/{image}", ["a b", "-x"])
    assert len(problems) == 5
    assert any("'1' is not an AWS account" in problem for problem in problems)


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


def test_image_with_test_double_is_refused() -> None:
    double = local_image({**LABELS, "berth.efa": "1.47.0+double"})
    assert "test's double of efa 1.47.0+double" in image_problems(double, [])[0]


def test_dirty_image_gets_no_release_tag() -> None:
    assert "commit, build again" in image_problems(DIRTY, ["1.0"])[0]
    assert image_problems(DIRTY, []) == []
    assert image_problems(IMAGE, ["1.0"]) == []


def test_build_prefix_is_refused_for_other_tags() -> None:
    for tag in ("build-0.1.0-cpu-000000000000", "build-mine"):
        (problem,) = image_problems(IMAGE, [tag])
        assert tag in problem
        assert IMAGE.push_tag in problem
    assert image_problems(IMAGE, [IMAGE.push_tag, "0.1.0", "0.1.0-cpu", "rebuild-1"]) == []


def test_image_without_revision_gets_a_warning() -> None:
    plain = local_image({f"{OCI}.version": "0.1.0"})
    assert image_problems(plain, ["1.0"]) == []
    (warning,) = warnings(plain, "000000000000")
    assert f"has no label {OCI}.revision" in warning


def test_warning_for_image_too_large_for_serverless() -> None:
    limit = 10 * 1024**3
    assert warnings(local_image(LABELS, image="serve", Size=limit), IMAGE.revision) == []
    (warning,) = warnings(local_image(LABELS, image="serve", Size=limit + 1), IMAGE.revision)
    assert "serverless endpoints accept at most 10.7" in warning
    assert warnings(local_image(LABELS, Size=limit + 1), IMAGE.revision) == [], "a training job has no such limit"


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


def test_warning_for_image_from_another_commit() -> None:
    (warning,) = warnings(IMAGE, "000000000000")
    assert warning.startswith(
        f"{IMAGE.name} was built from {IMAGE.revision}, and this checkout is at 000000000000: to use"
    )
    assert f"`python build.py build {IMAGE.image} --profile {IMAGE.profile}` first" in warning


def test_derived_image_is_pushed_under_its_own_name() -> None:
    assert (MINE.title, MINE.push_tag, MINE.build_name) == ("mytrain", "1", "mytrain:1")
    (place,) = destinations(MINE.title, [DUBLIN], None, None, derived=True)
    assert place.repository == "mytrain"
    (place,) = destinations(MINE.title, [DUBLIN], None, "team/{image}", derived=True)
    assert place.repository == "team/mytrain"
    assert image_problems(MINE, ["1.0"]) == []
    assert warnings(MINE, "another") == []


def test_problems_of_derived_images() -> None:
    dirty = local_image(DIRTY_LABELS, name="mytrain:1", derived=True)
    assert image_problems(dirty, []) == []
    assert warnings(dirty, "x") == ["mytrain:1 was built FROM an image with uncommitted changes."]
    (problem,) = image_problems(dirty, ["1.0"])
    assert problem.startswith("mytrain:1 contains uncommitted changes, so it can't be tagged 1.0: ")
    nameless = replace(MINE, name="sha256:1a2b")
    assert image_problems(nameless, []) == [
        "sha256:1a2b has no name to push it by: give it one with `docker tag sha256:1a2b NAME:TAG`."
    ]
    named_like_a_build = replace(MINE, name="mytrain:build-1")
    (problem,) = image_problems(named_like_a_build, [])
    assert problem.startswith("mytrain:build-1 was built FROM a build, but its tag begins with build-")
