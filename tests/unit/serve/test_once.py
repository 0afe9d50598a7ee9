"""make_once: one of several workers makes a folder, and the others wait until it is complete."""

import subprocess
import sys
from pathlib import Path

import pytest

from berth.serve.once import make_once

WORKER = """
import sys, time
from pathlib import Path
from berth.serve.once import make_once

folder = Path(sys.argv[1])

def make():
    folder.mkdir()
    (folder / "first").touch()
    print("made", flush=True)
    time.sleep(0.5)
    (folder / "last").touch()

make_once(folder, make)
print(*sorted(path.name for path in folder.iterdir()))
"""


def test_two_processes_make_the_folder_once(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", WORKER, str(tmp_path / "scratch/made-1")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = sorted(worker.communicate(timeout=60)[0].splitlines() for worker in both)
    assert outputs == [["first last"], ["made", "first last"]]


def test_make_once_tries_again_after_a_failure(tmp_path: Path) -> None:
    folder = tmp_path / "made-1"

    def fail() -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        make_once(folder, fail)
    make_once(folder, folder.mkdir)
    assert folder.is_dir()
    make_once(folder, fail)  # which is not called
