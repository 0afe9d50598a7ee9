"""The profiles as tables, and as JSON for programs."""

import io
import json
import shutil
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from berth.common.errors import UserError
from berth.images.build.plan import Revision
from berth.images.build.revision import NO_COMMIT
from berth.images.locks.locks import LOCKS
from berth.images.pins import pins_file
from berth.images.profiles import listing
from berth.images.profiles.add import Added

PINS = pins_file.load()
BUILT = {"berth-train:cpu"}


def rendered(table: object) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_list_shows_profiles_and_built_images() -> None:
    lines = rendered(listing.render_list(PINS, BUILT)).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:] if line[0] != " "}
    assert rows["cpu-hf4"] == ["cpu", "hf4", PINS.profile("cpu").torch, "4.26.0", "train", "–"]
    assert rows["cpu"][:2] == ["cpu", "current"]
    assert "train" in rows["cpu"][-1]
    assert listing.summary(PINS.profile("cpu"), BUILT)["images"] == {"train": "built", "serve": "not built"}
    assert listing.summary(PINS.profile("cpu"), None)["images"]["serve"] == "?"


def test_details_contain_driver_and_state_of_locks(tmp_path: Path) -> None:
    found = listing.details(PINS, PINS.profile("cu124"), LOCKS, BUILT)
    assert (found["driver"], found["python"]) == ("525", "3.11")
    assert found["locks"] == {"train": "up to date", "serve": "up to date"}
    assert found["locked"]["train"]["transformers"] == PINS.profile("cu124").packages["transformers"]
    assert "525 or newer" in rendered(listing.render_details(found))
    shutil.copytree(LOCKS, tmp_path / "locks")
    shutil.rmtree(tmp_path / "locks" / "cu124")
    found = listing.details(PINS, PINS.profile("cu124"), tmp_path / "locks", BUILT)
    assert "has nothing for profile cu124" in found["locks"]["train"]
    assert found["locked"]["train"] == {}


def test_details_show_the_sets_own_packages_and_variables(capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered(listing.render_details(listing.details(PINS, PINS.profile("cpu-hf4"), LOCKS, BUILT)))
    assert "safetensors==0.8.0" in text
    assert "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD 1" in text
    assert "driver" not in text


def test_details_show_locked_versions_of_packages_that_break_scripts() -> None:
    found = listing.details(PINS, PINS.profile("cpu-hf4"), LOCKS, BUILT)
    text = " ".join(rendered(listing.render_details(found)).split())
    for name in ("numpy", "pyarrow", "tokenizers", "huggingface-hub"):
        assert f"{name} {found['locked']['train'][name]}" in text
    both = {"train": {"numpy": "2.4.6", "pandas": "3.0"}, "serve": {"numpy": "2.2.0", "tokenizers": "0.22.1"}}
    assert listing.shown_versions(both) == ["numpy 2.4.6 (train) and 2.2.0 (serve)", "pandas 3.0", "tokenizers 0.22.1"]


def test_driver_is_the_oldest_that_runs_the_cuda() -> None:
    drivers = [listing.driver(PINS.profile(name)) for name in ("cpu", "cu130", "cu124")]
    assert drivers == ["", "580", "525"]


def test_list_and_show_print_one_json_document(
    command_line: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.common.engine.connect", MagicMock(side_effect=UserError("no engine")))
    assert command_line.main(["profile", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["profile"] for row in rows] == list(PINS.profiles)
    assert rows[0]["images"] == {"train": "?", "serve": "?"}
    assert command_line.main(["profile", "show", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["torch"] == PINS.profile("cpu").torch
    assert command_line.main(["profile", "show", "cpuu"]) == 1
    assert "did you mean cpu?" in " ".join(capsys.readouterr().err.split())


def test_ctrl_c_during_add_reports_unchanged_files(
    command_line: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.images.profiles.commands.add_profile", MagicMock(side_effect=KeyboardInterrupt))
    assert command_line.main(["profile", "add", "own"]) == 130
    assert "docker/pins.toml and the locks are unchanged." in capsys.readouterr().err


@pytest.mark.parametrize("commit", ["1a2b3c4d5e6f", NO_COMMIT])
def test_add_prints_git_commands_before_the_build_command(
    commit: str, command_line: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a commit, images are tagged -dirty, and `push` refuses --tag for them."""
    module = "berth.images.profiles.commands"
    monkeypatch.setattr(f"{module}.add_profile", lambda *_: Added(PINS.profile("cpu-hf4"), []))
    monkeypatch.setattr(f"{module}.read_revision", lambda _: Revision(commit))
    assert command_line.main(["profile", "add", "own"]) == 0
    *before, build = capsys.readouterr().out.splitlines()
    assert build == "python build.py build train --profile own"
    paths = "docker/pins.toml docker/bake.json docker/locks/own"
    committed = [f"git add {paths}", f"git commit -m 'Add the profile own' {paths}"]
    assert before == (committed if commit != NO_COMMIT else [])
