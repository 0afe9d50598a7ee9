"""The outputs of a job: every user can read the model, the owner of the mounted folders owns the files, checkpoints in
the model folder cause a warning, and the failure file is written on a full disk.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.runtime import whole_files
from berth.train.failures.failure import FailureFile, FailureReport
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


def test_warning_about_checkpoints_in_the_model_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model"
    files = {f"out/checkpoint-{step}/optimizer.pt": 400_000_000 for step in (10, 20, 30, 40)}
    for name, length in {**files, "model.safetensors": 200_000_000, "checkpoint-notes.txt": 9}.items():
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).touch()
        os.truncate(model / name, length)
    (model / "link").symlink_to("/proc/kcore")
    outcome.finish(outcome.Outcome(0), FailureFile(tmp_path / "output" / "failure"), tmp_path)
    warning, last = capfd.readouterr().out.splitlines()
    assert warning == (
        f"berth: warning: 1,600 MB of the 1,800 MB in {model} are checkpoints (out/checkpoint-10, out/checkpoint-20, "
        "out/checkpoint-30 and 1 more): SageMaker packs and uploads them with the model, which may take an hour or "
        f"fail; have the program write them to {tmp_path}/checkpoints (output_dir of transformers' Trainer), and give "
        "the estimator a checkpoint_s3_uri."
    )
    assert last == "berth: the job ends with exit code 0"


def test_failure_file_is_written_on_a_full_disk(tmp_path: Path, mounted: Callable[[Path, str], None]) -> None:
    mounted(tmp_path / "disk", "size=64k")
    file = FailureFile(tmp_path / "disk" / "output" / "failure")
    file.keep_room()
    with pytest.raises(OSError, match="No space left on device"):
        (tmp_path / "disk" / "model.safetensors").write_bytes(bytes(1 << 20))
    assert file.write(FailureReport("the disk is full" + "." * 800, host="algo-1", detail=("x" * 100,)))
    assert file.path.read_text().startswith("the disk is full...")
    assert [path.name for path in file.path.parent.iterdir()] == ["failure"], "the reserved space is freed"
