"""Which of the pushes on record `build.py uri` means."""

from dataclasses import replace

from berth.ecr.image import LocalImage
from berth.ecr.record import Pushed
from berth.ecr.uri import pushed_places

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
