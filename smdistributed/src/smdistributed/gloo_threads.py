"""Waits for gloo's threads before Python ends; without it SIGABRT may kill a rank that has done all its work.

A gloo thread of torch releases a collective's tensors after the program already has the result. Many programs end
without torch.distributed.destroy_process_group(). If a tensor belongs to Python, the thread then needs the GIL of an
interpreter that has ended, and is terminated where C++ does not allow it (torch 2.13;
github.com/pytorch/pytorch/issues/190489).
"""

import atexit
import time
from pathlib import Path

THREAD = "pt_gloo_runloop"
_CHECKS, _PAUSE, _LIMIT = 3, 0.002, 2.0  # seconds


def wait_at_exit(_: object = None) -> None:
    """Wait when this process exits, once. What is registered with atexit later runs before."""
    atexit.unregister(wait)
    atexit.register(wait)


def wait(tasks: Path = Path("/proc/self/task"), limit: float = _LIMIT) -> None:
    """Wait until no gloo thread is running, at most `limit` seconds. A sleeping one waits for work or for a rank."""
    if not tasks.is_dir():  # not Linux
        return
    threads = [task for task in tasks.iterdir() if _read(task / "comm").strip() == THREAD]
    deadline, at_rest = time.monotonic() + limit, 0
    while threads and at_rest < _CHECKS and time.monotonic() < deadline:
        time.sleep(_PAUSE)  # releases the GIL, which such a thread may be waiting for
        # In /proc's stat the state, R if it is running, follows the name in brackets (man proc_pid_stat).
        states = [_read(thread / "stat").rpartition(") ")[2] for thread in threads]
        at_rest = 0 if any(state.startswith("R") for state in states) else at_rest + 1


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the thread has ended
        return ""
