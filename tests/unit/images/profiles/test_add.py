"""`profile add` and `profile remove` change all files or none, even if interrupted or killed."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.images.locks.locks import LOCKS, LockRequest
from berth.images.network.build_network import Network, PackageIndex
from berth.images.pins import layer_files, pins, pins_file
from berth.images.profiles import add
from berth.images.profiles.add import Places, add_profile, remove_profile
from berth.images.profiles.proof import NEEDED, Proof, Proved, Prover
from berth.images.profiles.request import CompleteProfile, ProfileRequest

NETWORK = Network(None, PackageIndex(), (), "", "", "")
HF = {"transformers": "4.46.3", "accelerate": "1.6.0", "datasets": "3.5.0"}
Files = Callable[[], dict[str, bytes]]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """Copies of pins and locks for a test; resolving, locking and proving are fakes."""
    shutil.copytree(LOCKS, tmp_path / "locks")
    shutil.copy(pins.PATH, tmp_path / "pins.toml")
    monkeypatch.setattr(add, "complete", lambda request, *_: CompleteProfile(request, HF, [], ""))
    monkeypatch.setattr(add, "write_locks", write)
    monkeypatch.setattr(Prover, "prove", lambda *_: Proved([], []))
    return Places(tmp_path / "pins.toml", tmp_path / "locks")


@pytest.fixture
def files(places: Places) -> Files:
    """A function that returns the contents of all files."""
    root = places.pins.parent
    return lambda: {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()}


def write(all_pins: pins.Pins, profile: pins.Profile, folders: object, made: Path) -> list[Path]:
    (made / profile.name).mkdir()
    (made / profile.name / "deps-train.txt").write_text("a==1\n")
    return []


def added(places: Places, name: str = "own") -> add.Added:
    return add_profile(ProfileRequest(name), NETWORK, Proof.cpu, places=places)


def test_remove_undoes_add(places: Places, files: Files) -> None:
    layer_files.render_bake(pins_file.load(places.pins), places.pins.parent)
    before = files()
    assert added(places).profile.packages["transformers"] == "4.46.3"
    assert set(files()) - set(before) == {"locks/own/deps-train.txt"}
    assert pins_file.load(places.pins).profile("own").software.name == "own"
    assert "train-own" in json.loads((places.pins.parent / "bake.json").read_text())["target"]
    assert remove_profile("own", places) == [
        "[software.own] of pins.toml",
        "[profiles.own] of pins.toml",
        "docker/locks/own",
    ]
    assert files() == before


@pytest.mark.parametrize("error", [UserError("no"), KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("place", ["complete", "write_locks", "_install", "render_bake", "atomic_write"])
def test_failed_or_interrupted_add_changes_no_file(
    places: Places, files: Files, place: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files()
    monkeypatch.setattr(add, place, MagicMock(side_effect=error))
    with pytest.raises(type(error)):
        added(places)
    assert files() == before


@pytest.mark.parametrize("place", ["prove", "atomic_write"])
def test_sigkill_during_add_leaves_pins_unchanged(
    places: Places, files: Files, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files()
    child = os.fork()
    if not child:

        def kill(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(*((Prover, "prove", kill) if place == "prove" else (add, "atomic_write", kill)))
        added(places)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert files()["pins.toml"] == before["pins.toml"]
    added(places)  # replaces what the killed one left
    assert pins_file.load(places.pins).profile("own").name == "own"


@pytest.mark.parametrize(("proof", "locked"), [(Proof.cpu, False), (Proof.none, True)])
def test_impossible_proof_is_reported_before_locking(
    places: Places, files: Files, proof: Proof, locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof of a CUDA profile needs the CPU build of torch, which may be missing."""
    resolved: list[str] = []

    def resolve(request: LockRequest, *_: object) -> str:
        resolved.extend(request.requirements)
        raise UserError("the index did not answer.")

    monkeypatch.setattr("berth.images.profiles.proof.resolve", resolve)
    written: list[str] = []
    monkeypatch.setattr(
        add,
        "write_locks",
        lambda all_pins, profile, folders, made: written.append(write(all_pins, profile, folders, made)),
    )
    monkeypatch.setattr(add, "complete", lambda request, *_: CompleteProfile(request, HF, [], ""))
    before = files()
    with (
        nullcontext()
        if locked
        else pytest.raises(UserError, match=r"^own can't be proved .*: the index did not answer\. Add")
    ):
        add_profile(ProfileRequest("own", "cu124"), NETWORK, proof, places=places)
    assert (resolved, bool(written), files() == before) == ([] if locked else ["torch==2.5.1+cpu"], locked, not locked)


def test_concurrent_change_of_pins_is_kept(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    def another(*_: object) -> Proved:
        places.pins.write_text(places.pins.read_text() + "# another's\n")
        return Proved([], [])

    monkeypatch.setattr(Prover, "prove", another)
    added(places)
    assert "# another's\n" in places.pins.read_text()
    assert "own" in pins_file.load(places.pins).profiles


def test_variables_of_the_proof_are_set_in_the_images(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prover, "prove", lambda *_: Proved(["CUDA was not run."], [NEEDED[0]]))
    found = added(places)
    assert found.profile.software.environment == {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    assert '"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"' in (places.locks / "own" / "software.json").read_text()
    assert found.remarks[0].startswith("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 is set in the images of own: its")
    assert found.remarks[1:] == ["CUDA was not run."]


def test_invalid_profile_error_names_the_real_pins_file(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {**HF, "transformers": "none"}
    monkeypatch.setattr(add, "complete", lambda request, *_: CompleteProfile(request, bad, [], ""))
    with pytest.raises(UserError, match=r'transformers of \[software\.own\] is "none"') as caught:
        added(places)
    assert str(places.pins) in str(caught.value)
    assert ".locks-" not in str(caught.value)


def test_profile_that_others_need_is_not_removed(places: Places, files: Files) -> None:
    before = files()
    for name, message in [
        ("cpu", "cpu can't be removed: it is the default"),
        ("cu124", "cu124-hf4 comes from cu124: remove it first"),
    ]:
        with pytest.raises(UserError, match=message):
            remove_profile(name, places)
    with pytest.raises(UserError, match="there is no profile 'own'"):
        remove_profile("own", places)
    assert files() == before


def test_remove_changes_nothing_if_bake_json_fails(
    places: Places, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files()
    monkeypatch.setattr(add, "render_bake", MagicMock(side_effect=UserError("the disk is full")))
    with pytest.raises(UserError, match="the disk is full"):
        remove_profile("cpu-hf4", places)
    assert files() == before


def test_shared_software_set_is_removed_with_its_last_profile(places: Places) -> None:
    assert remove_profile("cpu-hf4", places)[0] == "[profiles.cpu-hf4] of pins.toml"
    assert "hf4" in pins_file.load(places.pins).software
    assert remove_profile("cu124-hf4", places)[0] == "[software.hf4] of pins.toml"
    assert "hf4" not in pins_file.load(places.pins).software


def test_next_add_removes_folder_of_a_killed_one(places: Places) -> None:
    left = places.locks.parent / ".locks-x"
    left.mkdir()
    (left / ".held").touch()
    added(places)
    assert not left.exists()
