"""Output folders are checked before a run, and held by one run at a time."""

import os
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.local.output_folders import check_writable, held


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
        with pytest.raises(UserError, match=r"can't be made .* is not a folder"):
            check_writable(tmp_path / folder)
    assert check_writable(tmp_path / "new/out") == tmp_path / "new/out"
    assert not (tmp_path / "new").exists()


def test_folder_is_held_by_one_run_at_a_time(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path), pytest.raises(UserError, match="another run writes its results to"), held(tmp_path):
            raise AssertionError("two runs hold the folder")
