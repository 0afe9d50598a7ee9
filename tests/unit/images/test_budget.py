"""Which images have a budget, and what `build` and `size` say of one that is over it."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from berth.common import engine, labels
from berth.common.kept import Kept
from berth.images import budget, commands, pins, size
from berth.images.build import Built
from berth.images.layers import Layer
from berth.images.plan import BuildPlan
from berth.images.selection import SelectedImage
from berth.images.size import ImageSize

KIT = pins.load()
BASE = f"{labels.SOURCE}.base.name"
OVER = ImageSize("berth-train:cpu", (Layer("sha256:1", "deps", 2_000_000_000, 420_000_000),), (), 410)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({BASE: KIT.base_image}, 410, id="pulled"),
        pytest.param({BASE: KIT.imported_base}, 410, id="made-here"),
        pytest.param({}, 410, id="by-docker-build-alone"),
        pytest.param({BASE: "registry.corp/debian:12"}, None, id="of-the-users-own"),
    ],
)
def test_a_base_of_the_users_own_is_measured_and_not_judged(found: dict[str, str], expected: int | None) -> None:
    assert budget.budget_of(KIT, "train", "cpu", found) == expected


def test_an_image_of_a_profile_that_another_checkout_has_is_measured_and_not_judged() -> None:
    assert budget.budget_of(KIT, "train", "theirs", {}) is None
    assert budget.no_budget(KIT, "theirs", {}) == "this checkout has no profile theirs"


def selected(base: str) -> SelectedImage:
    attrs = {"Config": {"Labels": {BASE: base}}}
    return SelectedImage("berth-train:cpu", "sha256:0", "train", "cpu", derived=False, attrs=attrs)


@pytest.mark.parametrize("words", [["size", "train"], ["size", "train", "--json"]])
@pytest.mark.parametrize(
    ("base", "budget_mb", "code", "said"),
    [
        (
            KIT.base_image,
            410,
            1,
            "berth: error: berth-train:cpu is 10.0 MB over its budget of 410 MB compressed: see which layer or package "
            "has grown, or raise the budget in docker/pins.toml.",
        ),
        ("corp:12", None, 0, "berth-train:cpu is not compared with a budget: it stands on corp:12."),
    ],
    ids=["the-kits-base", "a-base-of-the-users-own"],
)
def test_size_ends_with_1_over_the_budget(
    words: list[str],
    base: str,
    budget_mb: int | None,
    code: int,
    said: str,
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
    assert printed.err.splitlines()[-1] == said
    if "--json" in words:
        assert [each["budget_mb"] for each in json.loads(printed.out)] == [budget_mb]
    else:
        assert ("exceeded by 10.0 MB" in printed.out) == (code == 1)


def engine_with(sizes: dict[str, int], base: str = KIT.base_image) -> Any:
    """An engine with an image of layers of these names and plain sizes, lowest first."""
    history: list[dict[str, Any]] = [
        {"CreatedBy": f"RUN sh /tmp/layer/install.sh {name}", "Size": size} for name, size in sizes.items()
    ]
    image = SimpleNamespace(
        labels={labels.KIT: "train", labels.PROFILE: "cpu", BASE: base},
        attrs={"RootFS": {"Layers": [f"sha256:{name}" for name in sizes]}},
        history=lambda: [{"CreatedBy": "CMD train", "Size": 0}, *reversed(history)],
    )
    return SimpleNamespace(images=SimpleNamespace(get=lambda _: image))


@pytest.mark.parametrize(
    ("sizes", "kept", "about"),
    [
        pytest.param({"pytorch": 500_000_000, "deps": 500_000_000}, {}, None, id="as-usual"),
        pytest.param({"pytorch": 500_000_000, "deps": 800_000_000}, {}, None, id="within-what-a-guess-is-off-by"),
        pytest.param({"pytorch": 500_000_000, "deps": 900_000_000}, {}, 448, id="larger-than-usual"),
        pytest.param({"pytorch": 500_000_000, "deps": 900_000_000}, {"deps": 10_000_000}, None, id="measured-before"),
        pytest.param({"pytorch": 500_000_000}, {"pytorch": 411_000_000}, 411, id="measured-before-and-too-large"),
        pytest.param({"pytorch": 500_000_000, "efa": 9_000_000_000}, {}, None, id="files-do-not-count"),
    ],
)
def test_a_build_warns_at_no_cost(
    sizes: dict[str, int], kept: dict[str, int], about: int | None, tmp_path: Path
) -> None:
    for name, compressed in kept.items():
        Kept(tmp_path, 9).store(f"sha256:{name}", {"size": sizes[name], "compressed": compressed})
    said = budget.likely_over_budget(engine_with(sizes), "berth-train:x", KIT, tmp_path)
    expected = (
        f"berth-train:x has about {about} MB compressed, over its budget of 410 MB: `python build.py size train "
        "--profile cpu` measures it, and says which layer or package has grown."
    )
    assert said == (expected if about else "")
    assert budget.likely_over_budget(engine_with(sizes, "corp:12"), "berth-train:x", KIT, tmp_path) == ""


def test_build_says_it_after_the_image_and_ends_well(
    command_line: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    planned = BuildPlan("train", "cpu", (), ("berth-train:x", "berth-train:cpu"), tmp_path)
    monkeypatch.setattr(engine, "find_client", lambda: Path("docker"))
    monkeypatch.setattr(engine, "connect", lambda: engine_with({"deps": 2_000_000_000}))
    monkeypatch.setattr(size, "_USER_CACHE", tmp_path)
    monkeypatch.setattr(commands, "prepare", lambda *_: [planned])
    monkeypatch.setattr(
        commands, "run_build", lambda plan, *_: Built(plan, "sha256:0", "1 step", 1.0, tmp_path / "log")
    )
    assert command_line.main(["build", "train"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "berth-train:x  sha256:0\n"
    warning = "warning: berth-train:x has about 640 MB compressed, over its budget of 410 MB"
    assert printed.err.splitlines()[-1].startswith(warning)
