"""A folder of results is locked by one run at a time; the lock of a killed run is released."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.local.output_folders import LOCK_FILE, check_writable, lock_folders

HOLDS = """
import sys, time
from pathlib import Path
from berth.local.output_folders import lock_folders
with lock_folders([Path(each) for each in sys.argv[1:]]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_second_run_in_a_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    (tmp_path / "same").symlink_to(tmp_path)
    first = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    try:
        for folder in (tmp_path, tmp_path / "same"):
            with pytest.raises(UserError) as refused, lock_folders([folder]):
                pass
            assert str(refused.value) == (
                f"Another run (process {first.pid}) writes to {folder}: wait for its end, or choose another folder."
            )
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate()
    with lock_folders([tmp_path]):
        assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())
    assert not (tmp_path / LOCK_FILE).exists()


def test_same_folder_given_twice_is_locked_once(tmp_path: Path) -> None:
    with lock_folders([tmp_path, tmp_path / "." / ""]):
        pass
    assert list(tmp_path.iterdir()) == []


def test_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / LOCK_FILE).symlink_to("mine")
    with pytest.raises(UserError, match="can't be made"), lock_folders([tmp_path]):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_check_writable_refuses_folder_without_permission(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o500)
    for folder in ("theirs", "theirs/new/out"):
        with pytest.raises(UserError, match="you may not write to"):
            check_writable(tmp_path / folder)


def test_check_writable_creates_nothing_and_refuses_paths_below_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    for folder in ("file", "file/below", "nowhere"):
        with pytest.raises(UserError, match=r"can't be made .* is no folder"):
            check_writable(tmp_path / folder)
    assert check_writable(tmp_path / "new/out") == tmp_path / "new/out"
    assert not (tmp_path / "new").exists()
