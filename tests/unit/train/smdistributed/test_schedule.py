"""The picture of a step's schedule: what is drawn, and when it is written."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from berth.train.smdistributed.modelparallel.torch import schedule
from berth.train.smdistributed.modelparallel.torch.schedule_picture import Computed, joined, picture, tick
from tests.unit.train.smdistributed import ranks


def forward(microbatch: int, start: float, end: float) -> Computed:
    return Computed(microbatch, backward=False, start=start, end=end)


def backward(microbatch: int, start: float, end: float) -> Computed:
    return Computed(microbatch, backward=True, start=start, end=end)


SVG = "{http://www.w3.org/2000/svg}"
FIRST = [forward(0, 10.0, 10.2), forward(1, 10.2, 10.4), backward(0, 10.8, 11.0)]
SECOND = [forward(0, 10.2, 10.5), backward(0, 10.5, 10.8)]


def boxes(text: str) -> dict[str, tuple[float, float]]:
    """Left edge and width of each box, by what it says of itself."""
    found = {}
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        found[str(title.text)] = float(rect.attrib["x"]), float(rect.attrib["width"])
    return found


def test_every_microbatch_and_direction_has_its_box() -> None:
    text = picture([FIRST, SECOND], "step 3: train_step")
    found = boxes(text)
    assert found == {
        "microbatch 0, forward, 200.00 ms": (90.0, 192.0),
        "microbatch 1, forward, 200.00 ms": (282.0, 192.0),
        "microbatch 0, backward, 200.00 ms": (858.0, 192.0),
        "microbatch 0, forward, 300.00 ms": (282.0, 288.0),
        "microbatch 0, backward, 300.00 ms": (570.0, 288.0),
    }
    words = [each.text for each in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert {"partition 0", "partition 1", "60% busy", "0 ms", "1000 ms"} <= set(words)


def test_a_row_is_a_partition() -> None:
    tops = re.findall(r'<g><title>.*?y="(\d+)"', picture([FIRST, SECOND], ""))
    assert len(set(tops[:3])) == len(set(tops[3:])) == 1
    assert int(tops[0]) < int(tops[3])


def test_a_title_may_have_any_text() -> None:
    root = ElementTree.fromstring(picture([FIRST], "step 0: run.<locals>.train & test"))
    assert root[0].text == "step 0: run.<locals>.train & test"


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="the step computed nothing"):
        picture([[], []], "step 0")


def test_a_run_of_layers_is_one_box() -> None:
    layers = [forward(0, 0.0, 1.0), forward(0, 1.01, 2.0), forward(1, 2.0, 3.0), forward(1, 4.0, 5.0)]
    assert joined(layers, 0.05) == [forward(0, 0.0, 2.0), *layers[2:]]


@pytest.mark.parametrize(("whole", "step"), [(1.0, 0.1), (1.1, 0.2), (499.0, 50.0), (95.0, 10.0), (0.003, 0.0005)])
def test_ticks_are_round(whole: float, step: float) -> None:
    assert tick(whole) == pytest.approx(step)


def test_the_first_steps_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(schedule.FOLDER, str(tmp_path / "made"))
    pictures = schedule.Pictures()
    for _ in range(schedule.MOST_PICTURES + 2):
        pictures.draw("train_step", [FIRST])
    names = sorted(each.name for each in (tmp_path / "made").iterdir())
    assert names == sorted(f"step-{number}.svg" for number in range(schedule.MOST_PICTURES))


def test_a_folder_that_cant_be_written_to_stops_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(schedule.FOLDER, str(tmp_path / "file"))
    pictures = schedule.Pictures()
    with pytest.warns(UserWarning, match=rf"no picture of the schedule \(.*{schedule.FOLDER} name another folder"):
        pictures.draw("train_step", [FIRST])
    pictures.draw("train_step", [FIRST])  # and says so once


def test_without_the_variable_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(schedule.FOLDER, raising=False)
    stopwatch = schedule.Stopwatch()
    with stopwatch.runs(0, backward=False):
        pass
    assert stopwatch.take() == ()


BODY = """
smp.init({"partitions": 2, "microbatches": 3})
model = smp.DistributedModel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)))
@smp.step
def train_step(model, x):
    model.backward(model(x).sum())
for _ in range(2):
    train_step(model, torch.ones(6, 8))
result(None)
"""


@pytest.mark.slow
def test_a_job_draws_what_its_ranks_computed(tmp_path: Path) -> None:
    ranks.run(BODY, 2, tmp_path, **{schedule.FOLDER: str(tmp_path / "pictures")})
    text = (tmp_path / "pictures" / "step-1.svg").read_text()
    told = [each.rpartition(",")[0] for each in boxes(text)]
    assert set(told) == {f"microbatch {number}, {way}" for number in range(3) for way in ("forward", "backward")}
    assert "step 1: train_step" in text
    rows = {int(top) for top in re.findall(r'<g><title>.*?y="(\d+)"', text)}
    assert len(rows) == 2
