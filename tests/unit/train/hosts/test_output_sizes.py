"""Last log lines about the outputs: checkpoints in the model folder, and full disks."""

import os
import subprocess
from pathlib import Path

import pytest

from berth.train.failures.failure import FailureFile, FailureReport
from berth.train.hosts import outcome


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A mounted disk of 64 KB."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    return tmp_path


def test_failure_file_is_written_on_a_full_disk(small_disk: Path) -> None:
    try:
        file = FailureFile(small_disk / "output" / "failure")
        file.keep_room()
        with pytest.raises(OSError, match="No space left on device"):
            (small_disk / "model.safetensors").write_bytes(bytes(1 << 20))
        assert file.write(FailureReport("the disk is full" + "." * 800, host="algo-1", detail=("x" * 100,)))
        assert file.path.read_text().startswith("the disk is full...")
        assert [path.name for path in file.path.parent.iterdir()] == ["failure"], "the reserved space is freed"
    finally:
        subprocess.run(["umount", "--lazy", str(small_disk)], check=True)
