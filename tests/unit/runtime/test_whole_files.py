"""Files that are written under a temporary name and renamed are complete or missing."""

import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from berth.runtime import whole_files


def test_failed_write_keeps_previous_file(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    whole_files.write(path, "[1]")
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444
    with pytest.raises(UnicodeEncodeError):
        whole_files.write(path, "x" * 100_000 + "\ud800")
    assert path.read_text() == "[1]"
    assert list(tmp_path.iterdir()) == [path]


def test_remove_leftovers_keeps_files_of_other_hosts(tmp_path: Path) -> None:
    """Hosts share folders in the SDK's local mode: one may still write after another has ended."""
    kept = [tmp_path / ".berth-partial-algo-9-00112233-model", tmp_path / "model/.hidden", tmp_path / "model/x"]
    (tmp_path / "model").mkdir()
    for path in kept:
        path.touch()
    child = os.fork()
    if not child:  # ends in the middle of writing, as if killed by SIGKILL
        (tmp_path / "model/openvino").mkdir()
        with (
            whole_files.scratch(tmp_path / "model/weights") as folder,
            whole_files.scratch(tmp_path / "model/openvino/int8"),
        ):
            (folder / "half").touch()
            os._exit(0)
    os.waitpid(child, 0)
    assert len(list((tmp_path / "model").glob(".berth-partial-*"))) == 1
    whole_files.remove_leftovers(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)
    assert not list((tmp_path / "model/openvino").iterdir())


@pytest.mark.parametrize("moment", ["open", "os.rename"])
def test_killed_writer_keeps_previous_file(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    whole_files.write(path, "{}")
    child = os.fork()
    if not child:
        sys.addaudithook(lambda event, _: os.kill(os.getpid(), signal.SIGKILL) if event == moment else None)
        whole_files.write(path, '{"f1": 90}')
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_text() == "{}"
