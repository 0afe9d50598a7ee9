"""Lets gloo's threads come to rest before Python ends, or the rank is killed by SIGABRT after all its work.

A thread of torch's gloo lets go of a collective's tensors when the program has its result already. Where the program
then ends without torch.distributed.destroy_process_group(), as Trainer's do, and the tensor is one of Python's, the
thread asks for the lock of a Python that is no more, and is ended in a place where C++ allows no such thing (torch
2.13; github.com/pytorch/pytorch/issues/190489). Called by berth.train.startup.start_hook.
"""

import atexit
import time
from pathlib import Path
from types import ModuleType

THREAD = "pt_gloo_runloop"
_CHECKS, _PAUSE, _LIMIT = 3, 0.002, 2.0  # seconds


def after_import(_: ModuleType) -> None:
    """Of torch.distributed.distributed_c10d."""
    atexit.register(wait)


def wait(tasks: Path = Path("/proc/self/task"), limit: float = _LIMIT) -> None:
    """Until no thread of gloo computes, `limit` seconds at most: one that sleeps waits for work, or for a rank."""
    threads = [each for each in tasks.iterdir() if _read(each / "comm").strip() == THREAD]
    deadline, at_rest = time.monotonic() + limit, 0
    while threads and at_rest < _CHECKS and time.monotonic() < deadline:
        time.sleep(_PAUSE)  # without Python's lock, for which such a thread may be asking
        at_rest = 0 if any(_runs(each) for each in threads) else at_rest + 1


def _runs(thread: Path) -> bool:
    """By the state in its stat, which stands behind its name in brackets (man proc_pid_stat)."""
    return _read(thread / "stat").rpartition(") ")[2].startswith("R")


def _read(path: Path) -> str:
    """Empty where the thread has ended meanwhile."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
