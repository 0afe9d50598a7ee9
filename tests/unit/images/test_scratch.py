"""Temporary folders: removed at the end of a command, and after SIGKILL by the next one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from berth.images import clean
from berth.images.pins import pins
from berth.images.scratch import DRY_RUNS, PROOFS, SECRETS, scratch_folder, stale_folders

SCRIPT = """
import subprocess, sys, time
from pathlib import Path
from berth.images import scratch

slow = scratch.remove
def slowly(folder):
    print("removing", flush=True)
    time.sleep(0.3)
    slow(folder)
scratch.remove = slowly
with scratch.scratch_folder("berth-proof-", Path(sys.argv[1]), "stopping") as folder:
    (folder / "venv").mkdir()
    # One that goes on for a while.
    child = "import signal, time; signal.signal(2, lambda *_: None); print('on', flush=True); time.sleep(9)"
    subprocess.run([sys.executable, "-c", child], stdout=sys.stdout)
"""


@pytest.mark.slow
@pytest.mark.parametrize("during", ["wait", "removal"])
def test_second_ctrl_c_does_not_interrupt_cleanup(tmp_path: Path, during: str) -> None:
    """The second Ctrl-C comes while the first waits for the child process, or while the folder is removed."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=pins.ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    os.killpg(process.pid, signal.SIGINT)
    if during == "removal":
        assert process.stdout.readline() == "removing\n"
    else:
        time.sleep(0.1)  # Python must have seen the first one
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert out == ("" if during == "removal" else "removing\n")
    assert errors.count("stopping\n") == 1
    assert process.returncode in (130, -signal.SIGINT)
    assert not list(tmp_path.iterdir())


def killed_in(parent: Path, prefix: str = PROOFS) -> Path:
    """A folder whose process was killed."""
    if not (child := os.fork()):
        with scratch_folder(prefix, parent):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = parent.glob(f"{prefix}*")
    return left


def test_stale_folders_are_those_of_killed_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    left = killed_in(tmp_path)
    (tmp_path / f"{PROOFS}of-now").mkdir()  # another process is about to lock it
    old = tmp_path / f"{PROOFS}of-before-locks"
    old.mkdir()
    os.utime(old, (0, 0))
    with scratch_folder(SECRETS, tmp_path) as used:
        assert set(stale_folders(tmp_path / "docker" / "locks")) == {left, old}
    assert not used.exists()


def test_next_command_removes_secrets_of_a_killed_one(tmp_path: Path) -> None:
    left = killed_in(tmp_path, SECRETS)
    with scratch_folder(SECRETS, tmp_path) as first, scratch_folder(SECRETS, tmp_path) as second:
        assert first != second
        assert set(tmp_path.iterdir()) == {first, second}
    assert not left.exists()
    assert not any(tmp_path.iterdir())


def test_secrets_of_a_dry_run_are_kept_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    young, old = tmp_path / f"{DRY_RUNS}1", tmp_path / f"{DRY_RUNS}2"
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (0, 0))
    found = stale_folders(tmp_path / "docker" / "locks")
    assert old in found
    assert young not in found


def test_clean_removes_stale_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(clean, "LOCKS", tmp_path / "docker" / "locks")
    monkeypatch.setattr(pins, "CACHE", tmp_path / "cache")
    left = killed_in(tmp_path)
    assert list(map(str, clean.remove_folders(dry_run=True))) == [f"folder {left}"]
    assert left.exists()
    assert list(map(str, clean.remove_folders())) == [f"folder {left}"]
    assert not left.exists()
