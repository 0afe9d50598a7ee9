"""Python waits for gloo's threads before it exits."""

import ctypes
import hashlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import rank_jobs

from berth.smdistributed import gloo_threads

PR_SET_NAME = 15


@pytest.mark.slow
@pytest.mark.parametrize("name", [gloo_threads.THREAD, "another"])
def test_wait_until_gloo_thread_sleeps(name: str) -> None:
    computing, computed = threading.Event(), threading.Event()

    def compute() -> None:
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())
        computing.set()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 600_000)  # computes for 0.3 s without the GIL
        computed.set()
        time.sleep(0.2)

    thread = threading.Thread(target=compute)
    thread.start()
    computing.wait()
    gloo_threads.wait(limit=60.0)
    assert computed.is_set() == (name == gloo_threads.THREAD)
    thread.join()


def test_wait_has_limit(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "comm").write_text(f"{gloo_threads.THREAD}\n")
    (tmp_path / "7" / "stat").write_text(f"7 ({gloo_threads.THREAD}) R 1 7")
    began = time.monotonic()
    gloo_threads.wait(tmp_path, limit=0.1)
    assert 0.1 <= time.monotonic() - began < 5


def test_wait_ignores_ended_threads(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    gloo_threads.wait(tmp_path)


IDLE = """
import sys
sys.path.insert(0, {top!r})
from smdistributed import gloo_threads
gloo_threads.wait = lambda: print("at rest")
{use}
print("done")
"""
USES = {
    "model parallel": "import smdistributed.modelparallel.torch as smp; smp.init()",
    "data parallel": """
import smdistributed.dataparallel.torch.torch_smddp, torch.distributed as dist
dist.init_process_group("smddp", store=dist.HashStore(), rank=0, world_size=1)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_library_waits_at_exit(use: str, tmp_path: Path) -> None:
    code = IDLE.format(top=str(rank_jobs.on_path(tmp_path)), use=use)
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True, env=rank_jobs.environment(tmp_path)
    )
    assert result.stdout == "done\nat rest\n"


@pytest.mark.slow
def test_name_of_gloo_threads_in_torch() -> None:
    code = f"""
import contextlib, pathlib, time, torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
names, deadline = [], time.monotonic() + 60
while {gloo_threads.THREAD!r} not in names:  # a thread sets its name after it has started
    assert time.monotonic() < deadline, names
    time.sleep(0.01)
    with contextlib.suppress(OSError):  # a thread has ended meanwhile
        names = [each.read_text().strip() for each in pathlib.Path("/proc/self/task").glob("*/comm")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
