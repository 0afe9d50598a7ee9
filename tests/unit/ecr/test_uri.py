"""Which of the pushes on record `build.py uri` means."""

from dataclasses import replace

import pytest

from berth.ecr.image import LocalImage
from berth.ecr.record import Pushed
from berth.ecr.uri import choice_problems, narrowed, pushed_places

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


def here(image_id: str) -> LocalImage:
    return LocalImage("train", "cpu", "berth-train:cpu", image_id, {}, 30, "", ())


def test_the_build_that_is_here_is_found_wherever_it_was_pushed() -> None:
    record = [FIRST, GPU, ELSEWHERE, LATER]
    assert pushed_places("train", "cpu", here("sha256:c1"), record) == [FIRST, ELSEWHERE]


def test_a_build_that_was_not_pushed_has_no_place() -> None:
    assert pushed_places("train", "cpu", here("sha256:new"), [FIRST, LATER]) == []
    assert pushed_places("serve", "cpu", None, [FIRST]) == []


def test_on_a_machine_without_the_image_the_last_push_counts() -> None:
    assert pushed_places("train", "cpu", None, [FIRST, ELSEWHERE, LATER]) == [LATER]


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
def test_a_part_of_its_name_chooses_a_place_and_the_whole_name_before_others(
    text: str | None, chosen: list[Pushed]
) -> None:
    assert narrowed([WEST, PRODUCTION, EAST], text) == chosen


def test_a_build_in_several_places_is_no_one_word() -> None:
    assert choice_problems("train", "cpu", [WEST, EAST], None) == [
        f"this build of train is in 2 places, {WEST.name} and {EAST.name}: choose with --registry and a part of that "
        "name which the others do not have, or list them with --json."
    ]
    assert choice_problems("train", "cpu", [WEST, EAST], "us-east") == []
    assert choice_problems("train", "cpu", [WEST], None) == []
    assert choice_problems("train", "cpu", [], None) == []


@pytest.mark.parametrize(
    ("profile", "places", "text", "said"),
    [
        ("cpu", [WEST], "us-east-1", f", only to {WEST.name}: run `python build.py push train --region us-east-1`."),
        ("cu130", [], "us-east-1", ": run `python build.py push train --profile cu130 --region us-east-1`."),
        ("cpu", [], "harbor", ": push it there, or name another place."),
    ],
)
def test_a_place_that_is_not_on_record_is_said_with_the_push_that_puts_it_there(
    profile: str, places: list[Pushed], text: str, said: str
) -> None:
    begin = f"this build of train is not on record as pushed to {text}"
    assert choice_problems("train", profile, places, text) == [begin + said]
