"""Runs a script as several ranks of one job on this machine, with `smdistributed` as a top-level package."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.ports import free_port

FOLDER = Path(__file__).parent
LIMIT = 600.0
"""The time-out in seconds: several times the duration of the longest job on a busy machine."""
PACKAGE = FOLDER.parent / "src" / "smdistributed"
PLAIN = """
import os, sys
import torch
torch.set_num_threads(1)
RESULTS = os.environ["RESULTS"]
def result(value):
    torch.save(value, f"{RESULTS}/{os.environ.get('RANK', '0')}.pt")
"""
OPENING = f"""{PLAIN}
import torch.distributed as dist
import smdistributed.modelparallel.torch as smp
"""
OVER_NCCL_DOUBLE = f"""{OPENING}
import nccl_double
nccl_double.register()
dist.init_process_group(nccl_double.NAME)
"""


def on_path(folder: Path) -> Path:
    """A folder for PYTHONPATH that contains berth's `smdistributed`."""
    top = folder / "top"
    top.mkdir(exist_ok=True)
    link = top / "smdistributed"
    if not link.exists():
        link.symlink_to(PACKAGE, target_is_directory=True)
    return top


def environment(folder: Path, **more: str) -> dict[str, str]:
    """This process' environment without a launcher's variables."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("OMPI_", "SM_", "MASTER_"))}
    kept = {name: text for name, text in kept.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    paths = os.pathsep.join([str(on_path(folder)), str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    ours = {"PYTHONPATH": paths, "RESULTS": str(folder), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return {**kept, **ours, **more}


def job_environment(folder: Path, size: int, **more: str) -> dict[str, str]:
    """The variables that all ranks of a job share, without RANK and LOCAL_RANK."""
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    return environment(folder, **shared, MASTER_PORT=str(free_port()), **more)


def start(
    script: Path,
    size: int,
    folder: Path,
    *arguments: str,
    limit: float = LIMIT,
    imports: Sequence[str] = (),
    **more: str,
) -> list[str]:
    """Run a script on `size` ranks; the output of each rank. AssertionError with all outputs if one fails.

    imports: modules to import before forking. limit: the time-out in seconds. more: variables of the ranks.
    """
    command = [sys.executable, str(FOLDER / "forked_ranks.py"), str(size), ",".join(imports), str(script), *arguments]
    job = subprocess.Popen(command, env=job_environment(folder, size, **more), start_new_session=True)
    try:
        code = job.wait(limit)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    outputs = [path.read_text() for path in (folder / f"output-{rank}.txt" for rank in range(size)) if path.is_file()]
    assert code is not None, "\n".join([f"The ranks took more than {limit:.0f} s.", *outputs])
    assert code == 0, "\n".join(outputs)
    return outputs


def run(body: str, size: int, folder: Path, opening: str = OPENING, **how: Any) -> list[Any]:
    """Run `body` on `size` ranks; the value that each rank passed to `result(value)`. how: arguments of `start`."""
    script = folder / "script.py"
    script.write_text(opening + body)
    start(script, size, folder, **how)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]
