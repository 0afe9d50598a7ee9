"""The sentence about a program that was killed by a signal, or crashed in native code."""

import signal
from pathlib import Path

import pytest

from berth.train.failures.native import killed_sentence


@pytest.mark.parametrize(
    ("number", "killed_for_memory", "peak", "begin"),
    [
        (9, True, 900, "was killed by SIGKILL: out of memory (peak 900 MiB of 1000 MiB); use a smaller batch"),
        (9, False, 800, "was killed by SIGKILL (out of memory? peak 800 MiB of 1000 MiB); if so, use a smaller"),
        (9, False, 799, "was killed by SIGKILL, and memory was not short (peak 799 MiB of 1000 MiB): find out who"),
        (9, False, 0, "was killed by SIGKILL (out of memory? peak unknown of 1000 MiB)"),
        (
            7,
            False,
            900,
            "was killed by SIGBUS: /dev/shm is probably full; give the container more (docker run --shm-size 8g, ",
        ),
        (15, False, 900, "was stopped by SIGTERM"),
        (11, False, 900, "was killed by SIGSEGV"),
    ],
)
def test_killed_sentence(tmp_path: Path, number: int, killed_for_memory: bool, peak: int, begin: str) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(str(1000 << 20))
    if peak:
        (group / "memory.peak").write_text(str(peak << 20))
    sentence = killed_sentence("rank 1 on algo-2", number, killed_for_memory=killed_for_memory, root=tmp_path)
    assert sentence.startswith(f"rank 1 on algo-2 {begin}")


@pytest.mark.parametrize(
    ("line", "exception"),
    [
        ("  what():  CUDA error: an illegal memory access", "c10::Error: CUDA error: an illegal memory access"),
        ("Fatal Python error: Aborted", "c10::Error"),
    ],
)
def test_crash_names_the_cpp_exception(line: str, exception: str) -> None:
    printed = ["terminate called after throwing an instance of 'c10::Error'", line]
    assert killed_sentence("rank 1", signal.SIGABRT, printed) == (
        f"rank 1 was killed by SIGABRT, a crash in native code: {exception}; set PYTHONFAULTHANDLER to 1 in the job's "
        "environment, and the log shows which line of Python called it."
    )
