"""What goes and what stays when the kit cleans up."""

import subprocess
import sys
from dataclasses import replace

import pytest

from berth.images import clean, labels, owner

ME = owner.this_process()
OURS = "berth-train:cpu"


@pytest.fixture(scope="module")
def gone() -> owner.Owner:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(ME, pid=child.pid)


@pytest.mark.parametrize(
    ("found", "image", "status", "stays"),
    [
        pytest.param({labels.KIT: "train"}, OURS, "running", "it runs, and no run of the kit started it", id="persons"),
        pytest.param({labels.KIT: "train"}, OURS, "exited", "", id="a-persons-that-ended"),
        pytest.param(
            {labels.KIT: "train"},
            "my:1",
            "exited",
            "it is of your own image my:1; `docker rm` removes it",
            id="of-a-persons-image",
        ),
        pytest.param(ME.labels("1"), OURS, "running", f"its run goes on, in process {ME.pid}", id="a-run-in-progress"),
        pytest.param(ME.labels("1"), "my:1", "created", f"its run goes on, in process {ME.pid}", id="a-run-begins"),
    ],
)
def test_containers(found: dict[str, str], image: str, status: str, stays: str) -> None:
    assert clean.container_stays(found, image, status) == stays


def test_what_a_dead_owner_left_goes(gone: owner.Owner) -> None:
    assert clean.container_stays(gone.labels("1"), OURS, "running") == ""
    assert clean.run_stays(gone.labels("1")) == ""


@pytest.mark.parametrize(
    ("tag", "ours"),
    [
        pytest.param("berth-train:cpu", True, id="moving"),
        pytest.param("berth-serve:0.1.0-cpu-1a2b3c4d5e6f", True, id="exact"),
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
