"""The outputs of a job: every user can read the model, and the owner of the mounted folders owns the files."""

import os
import signal
from pathlib import Path

import pytest

from berth.runtime import whole_files
from berth.train.failures.failure import FailureFile
from berth.train.hosts import outcome, ownership


def test_model_can_be_read_by_a_server_that_is_not_root(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "code").mkdir(parents=True, mode=0o700)
    elsewhere = tmp_path / "elsewhere"
    for path, mode in (
        (model / "model.safetensors", 0o600),
        (model / "config.json", 0o664),
        (model / "code" / "start.sh", 0o700),
        (elsewhere, 0o600),
    ):
        path.touch()
        path.chmod(mode)
    (model / "link").symlink_to(elsewhere)
    outcome.finish(outcome.Outcome(0), FailureFile(tmp_path / "output" / "failure"), tmp_path)
    assert {path.relative_to(tmp_path).as_posix(): path.lstat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {
        "model": 0o755,
        "model/model.safetensors": 0o644,
        "model/config.json": 0o644,
        "model/code": 0o755,
        "model/code/start.sh": 0o755,
        "model/link": 0o777,
        "elsewhere": 0o600,
    }


def test_unfinished_files_of_a_killed_rank_are_removed(tmp_path: Path) -> None:
    """SageMaker uploads the outputs of a failed job too."""
    (tmp_path / "output/data").mkdir(parents=True)
    rank = os.fork()
    if not rank:
        with whole_files.scratch(tmp_path / "model/model"), whole_files.scratch(tmp_path / "output/data/trace"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(rank, 0)
    assert len(list(tmp_path.rglob(".*"))) == 2
    outcome.finish(outcome.Outcome(0), FailureFile(tmp_path / "output" / "failure"), tmp_path)
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_of_the_mount_owns_the_outputs(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "sub" / "weights").touch()
    (model / "link").symlink_to("/etc/hostname")
    (tmp_path / "checkpoints/checkpoint-1").mkdir(parents=True)
    assert ownership.hand_over(tmp_path) is None
    os.chown(model, 1234, 1234)
    assert ownership.hand_over(tmp_path) == 1234
    assert {path.lstat().st_uid for path in tmp_path.rglob("*")} == {1234}
    assert Path("/etc/hostname").stat().st_uid == 0
