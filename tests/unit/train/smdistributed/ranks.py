"""Ranks of one job on this machine: several processes run one script, with `smdistributed` at the top level."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from berth.images import pins

PACKAGE = pins.ROOT / "train" / "smdistributed"
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


def on_path(folder: Path) -> Path:
    """A folder for PYTHONPATH in which `smdistributed` is the kit's."""
    top = folder / "top"
    top.mkdir(exist_ok=True)
    link = top / "smdistributed"
    if not link.exists():
        link.symlink_to(PACKAGE, target_is_directory=True)
    return top


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def environment(folder: Path, **more: str) -> dict[str, str]:
    """This process' environment without a launcher's variables."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("OMPI_", "SM_", "MASTER_"))}
    kept = {name: text for name, text in kept.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    paths = os.pathsep.join([str(on_path(folder)), *filter(None, [os.environ.get("PYTHONPATH")])])
    ours = {"PYTHONPATH": paths, "RESULTS": str(folder), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return {**kept, **ours, **more}


def start(command: list[str], size: int, folder: Path, limit: float = 120.0, **more: str) -> list[str]:
    """What each of `size` ranks of a command printed; AssertionError with all of it if one fails."""
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    shared["MASTER_PORT"] = str(free_port())
    started = [
        subprocess.Popen(
            command,
            env=environment(folder, **shared, RANK=str(rank), LOCAL_RANK=str(rank), **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=limit)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    codes = [process.returncode for process in started]
    assert codes == [0] * size, "\n".join(said)
    return said


def run(body: str, size: int, folder: Path, limit: float = 120.0, opening: str = OPENING, **more: str) -> list[Any]:
    """What each of `size` ranks handed to `result(value)`; AssertionError with all that they printed if one fails."""
    script = folder / "script.py"
    script.write_text(opening + body)
    start([sys.executable, str(script)], size, folder, limit, **more)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]
