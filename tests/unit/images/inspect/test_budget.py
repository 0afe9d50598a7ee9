"""Which images have a budget, and how `size` reports one that exceeds it."""

import json
from dataclasses import replace
from types import ModuleType

import pytest

from berth.common import engine, labels
from berth.images import commands
from berth.images.inspect import budget
from berth.images.inspect.layers import Layer
from berth.images.inspect.size import ImageSize
from berth.images.local_image import LocalImage
from berth.images.pins import pins_file

PINS = pins_file.load()
BASE = f"{labels.SOURCE}.base.name"
OVER = ImageSize("berth-train:cpu", (Layer("sha256:1", "deps", 2_000_000_000, 420_000_000),), (), 410)


@pytest.mark.parametrize(
    ("image_labels", "expected"),
    [
        pytest.param({BASE: PINS.base_image}, 410, id="pulled"),
        pytest.param({BASE: PINS.imported_base}, 410, id="imported-base"),
        pytest.param({}, 410, id="no-label"),
        pytest.param({BASE: "registry.corp/debian:12"}, None, id="other-base"),
    ],
)
def test_image_on_another_base_has_no_budget(image_labels: dict[str, str], expected: int | None) -> None:
    assert budget.budget_of(PINS, "train", "cpu", image_labels) == expected


def test_image_of_unknown_profile_has_no_budget() -> None:
    assert budget.budget_of(PINS, "train", "theirs", {}) is None
    assert budget.no_budget(PINS, "theirs", {}) == "this checkout has no profile theirs"


def selected(base: str) -> LocalImage:
    attrs = {"Config": {"Labels": {BASE: base}}}
    return LocalImage("berth-train:cpu", "sha256:0", "train", "cpu", derived=False, attrs=attrs)


@pytest.mark.parametrize("words", [["size", "train"], ["size", "train", "--json"]])
@pytest.mark.parametrize(
    ("base", "budget_mb", "code", "message"),
    [
        (
            PINS.base_image,
            410,
            1,
            "berth: error: berth-train:cpu is 10.0 MB over its budget of 410 MB compressed: see which layer or package "
            "has grown, or raise the budget in docker/pins.toml.",
        ),
        ("corp:12", None, 0, "berth-train:cpu is not compared with a budget: its base is corp:12."),
    ],
    ids=["pinned-base", "other-base"],
)
def test_size_exits_with_1_over_the_budget(
    words: list[str],
    base: str,
    budget_mb: int | None,
    code: int,
    message: str,
    command_line: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def measured(client: object, name: str, *, budget_mb: float | None, step: object) -> ImageSize:
        return replace(OVER, budget_mb=budget_mb)

    monkeypatch.setattr(engine, "connect", lambda: None)
    monkeypatch.setattr(commands, "select_images", lambda *_: [selected(base)])
    monkeypatch.setattr(commands, "image_size", measured)
    assert command_line.main(words) == code
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == message
    if "--json" in words:
        assert [each["budget_mb"] for each in json.loads(printed.out)] == [budget_mb]
    else:
        assert ("exceeded by 10.0 MB" in printed.out) == (code == 1)
