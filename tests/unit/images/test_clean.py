"""What goes and what stays when the kit cleans up."""

import subprocess
import sys
from dataclasses import replace

import pytest

from berth.common import labels, owner
from berth.images import clean

ME = owner.this_process()


@pytest.fixture(scope="module")
def gone() -> owner.Owner:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(ME, pid=child.pid)


@pytest.mark.parametrize(
    ("found", "stays"),
    [
        pytest.param(
            {labels.KIT: "train"}, "no run of the kit started it; `docker rm` removes it", id="a-persons-running-or-not"
        ),
        pytest.param(ME.labels("1"), f"its run goes on, in process {ME.pid}", id="a-run-in-progress"),
    ],
)
def test_containers(found: dict[str, str], stays: str) -> None:
    assert clean.container_stays(found) == stays


OWN = "it is your own, built FROM the kit's; `docker rmi` removes it"


@pytest.mark.parametrize(
    ("tags", "layers", "named", "stays"),
    [
        pytest.param(["berth-train:cpu", "my:1"], 21, 20, "", id="a-name-of-ours"),
        pytest.param([], 20, 20, "", id="an-earlier-build-of-ours"),
        pytest.param([], 21, 20, OWN, id="built-from-ours-without-a-name"),
        pytest.param(["my:1"], 20, 20, OWN, id="built-from-ours"),
        pytest.param(
            [],
            20,
            None,
            "nothing here tells whether it is your own, built FROM the kit's; `docker rmi` removes it",
            id="nothing-to-compare-with",
        ),
    ],
)
def test_images(tags: list[str], layers: int, named: int | None, stays: str) -> None:
    assert clean.image_stays(tags, layers, named) == stays


def test_what_a_dead_owner_left_goes(gone: owner.Owner) -> None:
    assert clean.container_stays(gone.labels("1")) == ""
    assert clean.run_stays(gone.labels("1")) == ""


@pytest.mark.parametrize(
    ("tag", "ours"),
    [
        pytest.param("berth-train:cpu", True, id="moving"),
        pytest.param("berth-serve:build-0.1.0-cpu-1a2b3c4d5e6f", True, id="exact"),
        pytest.param("berth-base:bookworm", True, id="base"),
        pytest.param("1.dkr.ecr.eu-west-1.amazonaws.com/team/berth-train:cpu", True, id="in-a-registry"),
        pytest.param("localhost:5000/berth-train:cpu", True, id="registry-with-a-port"),
        pytest.param("my-train:1", False, id="built-from-ours"),
        pytest.param("berth-train-mine:cpu", False, id="like-ours"),
        pytest.param("berth-train/x:1", False, id="below-ours"),
    ],
)
def test_names_that_the_kit_gives(tag: str, ours: bool) -> None:
    assert clean.is_ours(tag) == ours


@pytest.mark.parametrize(
    ("item", "line"),
    [
        pytest.param(clean.Item("image", "berth-train:cpu"), "image berth-train:cpu", id="goes"),
        pytest.param(
            clean.Item("network", "n", "its run goes on, in process 3"),
            "network n stays: its run goes on, in process 3",
            id="stays",
        ),
    ],
)
def test_an_item_says_what_becomes_of_it(item: clean.Item, line: str) -> None:
    assert str(item) == line
