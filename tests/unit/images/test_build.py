"""The log of a build, where the disk takes it and where it does not."""

import os
import stat
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.images import build, pins
from berth.images.plan import BuildPlan


def test_a_line_of_the_log_is_there_at_once(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with build._opened(log) as keep:
        keep("one é\n")
        assert log.read_text(encoding="utf-8") == "one é\n"
        keep("two\n")
    assert log.read_text(encoding="utf-8") == "one é\ntwo\n"


def test_a_log_in_no_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(UserError, match=r"the build's log can't be written to .*/logs is no folder"):
        with build._opened(tmp_path / "logs" / "a.log"):
            pass


def test_a_disk_that_fills_while_a_build_runs_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"the disk of /dev is full, and the build's log does not fit: free some room"):
        with build._opened(Path("/dev/full")) as keep:
            keep("one\n")


def test_logs_are_for_this_user_alone_those_of_earlier_versions_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "CACHE", tmp_path)
    (tmp_path / "logs").mkdir(mode=0o755)
    log = build._log_file(BuildPlan("train", "cpu", (), ("berth-test:x",), tmp_path))
    before = os.umask(0)
    try:
        with build._opened(log) as keep:
            keep("a line\n")
    finally:
        os.umask(before)
    assert (stat.S_IMODE(log.stat().st_mode), stat.S_IMODE(log.parent.stat().st_mode)) == (0o600, 0o700)
