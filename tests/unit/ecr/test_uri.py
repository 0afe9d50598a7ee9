"""`build.py uri` chooses among the recorded pushes."""

from dataclasses import replace

import pytest

from berth.ecr.repositories.record import Pushed
from berth.ecr.uri import (
    choice_notes,
    choice_problems,
    matching_places,
    named_place,
    preferred,
    pushed_places,
    pushed_places_by_name,
)
from berth.images.local_image import LocalImage
from tests.doubles.local_image import local_image

FIRST = Pushed(
    image="train",
    profile="cpu",
    host="127.0.0.1:5000",
    repository="berth-train",
    digest="sha256:1",
    config="sha256:c1",
    local_id="sha256:c1",
    tags=("0.1.0-cpu-1a2b",),
    version="0.1.0",
    revision="1a2b",
    pins={},
    compressed=10,
    size=30,
    built="",
    pushed="",
)
ELSEWHERE = replace(FIRST, host="127.0.0.1:6000")
LATER = replace(FIRST, host="127.0.0.1:7000", config="sha256:c2", local_id="sha256:c2")
GPU = replace(FIRST, profile="cu130")
MINE = replace(FIRST, repository="mytrain", config="sha256:m", local_id="sha256:m", derived="mytrain:latest")
IMAGE = local_image({}, "sha256:c1")
MY_IMAGE = local_image({}, "sha256:m", name="mytrain:latest", derived=True)


@pytest.mark.parametrize(
    ("image", "local", "record", "places"),
    [
        pytest.param("train", IMAGE, [FIRST, GPU, ELSEWHERE, LATER], [FIRST, ELSEWHERE], id="all"),
        pytest.param("train", local_image({}, "sha256:new"), [FIRST, LATER], [], id="build-that-was-not-pushed"),
        pytest.param("serve", None, [FIRST], [], id="other-image"),
        pytest.param("train", None, [FIRST, ELSEWHERE, LATER], [LATER], id="last-push-without-the-image"),
        pytest.param("train", IMAGE, [FIRST, MINE], [FIRST], id="berths-image"),
        pytest.param("train", None, [FIRST, MINE], [FIRST], id="derived-is-not-berths"),
        pytest.param("train", MY_IMAGE, [FIRST, MINE], [MINE], id="derived"),
    ],
)
def test_pushed_places(image: str, local: LocalImage | None, record: list[Pushed], places: list[Pushed]) -> None:
    assert pushed_places(image, "cpu", local, record) == places


@pytest.mark.parametrize(("name", "places"), [("mytrain", [MINE]), ("berth-train:cpu", [])])
def test_pushed_places_by_name_are_those_of_derived_images(name: str, places: list[Pushed]) -> None:
    assert pushed_places_by_name(name, [FIRST, MINE]) == places


@pytest.mark.parametrize(
    ("image", "place"),
    [
        ("127.0.0.1:6000/berth-train:plain", "127.0.0.1:6000/berth-train"),
        ("127.0.0.1:6000/berth-train-2:plain", None),
        ("mytrain:1", None),
        (None, None),
    ],
)
def test_named_place(image: str | None, place: str | None) -> None:
    assert named_place(image, [FIRST, ELSEWHERE]) == place


ECR = "111122223333.dkr.ecr.{}.amazonaws.com"
WEST = replace(FIRST, host=ECR.format("eu-west-1"))
PRODUCTION = replace(WEST, repository="berth-train-prod")
EAST = replace(FIRST, host=ECR.format("us-east-1"))


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (None, [WEST, PRODUCTION, EAST]),
        ("us-east-1", [EAST]),
        ("eu-west-1", [WEST, PRODUCTION]),
        ("-prod", [PRODUCTION]),
        (WEST.name, [WEST]),
        ("ap-east-1", []),
    ],
)
def test_matching_places_prefers_the_whole_name(text: str | None, chosen: list[Pushed]) -> None:
    assert matching_places([WEST, PRODUCTION, EAST], text) == chosen


UNKNOWN = "this build of train is not on record as pushed "


@pytest.mark.parametrize(
    ("profile", "places", "text", "problems"),
    [
        ("cpu", [WEST, EAST], None, []),
        ("cpu", [WEST, EAST], "us-east", []),
        ("cpu", [WEST], None, []),
        ("cpu", [], None, []),
        (
            "cpu",
            [WEST, EAST],
            "amazonaws",
            [
                f"this build of train is in 2 places, {WEST.name} and {EAST.name}: choose with --registry and a part "
                "of the name that the others do not have, or list them with --json."
            ],
        ),
        (
            "cpu",
            [WEST],
            "us-east-1",
            [f"{UNKNOWN}to us-east-1, only to {WEST.name}: run `python build.py push train --region us-east-1`."],
        ),
        (
            "cu130",
            [],
            "us-east-1",
            [
                f"{UNKNOWN}anywhere: run `python build.py push train --profile cu130 --region us-east-1`, or leave "
                "--registry out to get the local name, for local mode."
            ],
        ),
        (
            "cpu",
            [],
            "harbor",
            [
                f"{UNKNOWN}anywhere: push it there, or name another place, or leave --registry out to get the local "
                "name, for local mode."
            ],
        ),
    ],
)
def test_choice_problems(profile: str, places: list[Pushed], text: str | None, problems: list[str]) -> None:
    assert choice_problems("train", profile, places, text) == problems


HARBOR = replace(FIRST, host="harbor.example")


@pytest.mark.parametrize(
    ("places", "region", "best"),
    [
        pytest.param([FIRST, WEST], "", WEST, id="ecr-before-this-machine"),
        pytest.param([HARBOR, WEST], "", WEST, id="ecr-before-others"),
        pytest.param([FIRST, HARBOR], "", HARBOR, id="others-before-this-machine"),
        pytest.param([WEST, EAST], "us-east-1", EAST, id="region-of-the-environment"),
        pytest.param([WEST, PRODUCTION], "eu-west-1", WEST, id="first-push-before-copy"),
    ],
)
def test_preferred_place(places: list[Pushed], region: str, best: Pushed) -> None:
    assert preferred(places, region) == best


def test_choice_notes() -> None:
    assert choice_notes("train", [WEST], WEST) == []
    assert choice_notes("train", [WEST, PRODUCTION], WEST) == [
        f"this build of train is in 2 places, {WEST.name} and {PRODUCTION.name}: this is the one in {WEST.name}; "
        "choose another with --registry and a part of its name."
    ]
    assert choice_notes("train", [FIRST], FIRST) == [
        f"{FIRST.name} is on this machine, and SageMaker can't pull from it: use it in local mode, and push to ECR for "
        "an estimator on AWS."
    ]
