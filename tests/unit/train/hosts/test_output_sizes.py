"""Last log lines about the outputs: checkpoints in the model folder, and full disks."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from berth.train.failures.failure import FailureFile, FailureReport
from berth.train.failures.raised import TRACEBACK
from berth.train.hosts import outcome
from tests.unit.train.failures.printed import ending_sentence


def write_files(root: Path, files: Mapping[str, int]) -> None:
    for name, length in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with (root / name).open("wb") as file:
            file.truncate(length)


def finish(root: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    outcome.finish(outcome.Outcome(0), FailureFile(root / "output" / "failure"), root)
    return capfd.readouterr().out.splitlines()


def test_warning_about_checkpoints_in_the_model_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_files(tmp_path, {f"model/out/checkpoint-{step}/optimizer.pt": 400_000_000 for step in (10, 20, 30, 40)})
    write_files(tmp_path, {"model/model.safetensors": 200_000_000, "model/checkpoint-notes.txt": 9})
    (tmp_path / "model" / "link").symlink_to("/proc/kcore")
    warning, last = finish(tmp_path, capfd)
    model = tmp_path / "model"
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


@pytest.mark.parametrize(
    "message",
    [
        "OSError: [Errno 28] No space left on device: '/opt/ml/model/weights'",
        "safetensors_rust.SafetensorError: Error while serializing: I/O error: Os { code: 28, kind: StorageFull }",
    ],
)
def test_full_disk_is_explained(message: str) -> None:
    stderr = [TRACEBACK, '  File "/opt/ml/code/train.py", line 3, in save', message]
    sentence = ending_sentence("train.py", 1, stderr, "/opt/ml/code")
    assert sentence == (
        f"{message} (raised at train.py:3 in save); a disk of this host is full: give the job a larger one "
        "(volume_size of the estimator), or write less"
    )


def test_full_tmp_is_explained_if_mpi_cannot_start() -> None:
    stderr = """\
[algo-2:00028] PMIX ERROR: OUT-OF-RESOURCE in file src/client/pmix_client.c at line 277
*** An error occurred in MPI_Init_thread
[algo-2:00028] Local abort before MPI_INIT completed completed successfully, but am not able to aggregate error messages
"""
    assert ending_sentence("train.py", 1, stderr.splitlines(), "/opt/ml/code").startswith(
        "train.py could not start under mpirun, whose files are in /tmp: a disk of this host is full: "
    )
