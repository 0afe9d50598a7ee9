"""The all-reduce over the GPUs of this host, one process per GPU, as in a training job after every step."""

import os
import subprocess
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from berth.runtime import subprocesses
from berth.runtime.gpu.bench import peaks, timing
from berth.runtime.gpu.bench.record import Measured

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

MIB = 1 << 20
SIZES = {"cuda": (MIB, 16 * MIB, 64 * MIB, 256 * MIB), "cpu": (MIB // 4, MIB)}
REPEATS = {"cuda": 20, "cpu": 5}
CPU_RANKS = 2
ENOUGH = 0.5  # of the speed of NVLink
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
# All ranks are on this host and use the loopback interface, which exists in a container without network too.
ENVIRONMENT = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}


def all_reduce(device: str) -> Measured:
    """Bus bandwidth in GB/s (peaks.bus_bandwidth) for the largest of SIZES; float32 sums are checked first.

    With one GPU there is no link to measure: NCCL only starts and sums over one rank. On `cpu` two ranks use gloo.
    """
    import torch
    from torch import multiprocessing

    ranks = torch.cuda.device_count() if device == "cuda" else CPU_RANKS
    with tempfile.TemporaryDirectory() as folder:
        results: SimpleQueue[dict[int, float]] = multiprocessing.get_context("spawn").SimpleQueue()
        arguments = ranks, device, f"file://{folder}/meeting", results
        multiprocessing.spawn(_rank, arguments, nprocs=ranks)  # type: ignore[attr-defined,no-untyped-call]
        seconds = results.get()
    backend = _backend(device)
    sizes = [
        {"bytes": size, "seconds": taken, "gb_per_s": peaks.bus_bandwidth(size, taken, ranks)}
        for size, taken in seconds.items()
    ]
    details: dict[str, Any] = {"ranks": ranks, "backend": backend, "sizes": sizes}
    if ranks == 1:
        return Measured(None, "GB/s", note=f"1 GPU: {backend} starts and sums, no link to measure", details=details)
    nvlink = peaks.nvlink(nvidia_smi("nvlink", "-s")) if device == "cuda" else None
    if device == "cuda":
        details["peer_access"] = all(
            torch.cuda.can_device_access_peer(one, other)
            for one in range(ranks)
            for other in range(ranks)
            if one != other
        )
    return Measured(
        sizes[-1]["gb_per_s"],
        "GB/s",
        limit=nvlink,
        enough=ENOUGH,
        note=f"{backend}, {ranks} ranks, {max(SIZES[device]) // MIB} MiB{', NVLink' if nvlink else ''}",
        details=details,
    )


def _rank(rank: int, ranks: int, device: str, meeting: str, results: "SimpleQueue[dict[int, float]]") -> None:
    """One rank. Rank 0 puts a dict into `results`: size in bytes → seconds of an all-reduce on the slowest rank."""
    import torch
    from torch import distributed

    torch_device = torch.device(device, rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(torch_device)
    distributed.init_process_group(
        BACKENDS[device],
        init_method=meeting,
        rank=rank,
        world_size=ranks,
        device_id=torch_device if device == "cuda" else None,
    )
    seconds: dict[int, float] = {}
    for size in SIZES[device]:
        buffer = torch.full((size // 4,), rank + 1.0, device=torch_device)
        distributed.all_reduce(buffer)
        wrong = int((buffer != ranks * (ranks + 1) / 2).sum())
        if wrong:
            raise ArithmeticError(f"{wrong} of {size // 4} sums over {ranks} ranks are wrong")
        # Small numbers, because every repeat multiplies them. Not zeros: chips are faster with them.
        buffer.normal_().mul_(1e-6)
        call = partial(distributed.all_reduce, buffer)
        timing.seconds_of_round(call, device, REPEATS[device])
        distributed.barrier()
        taken = torch.tensor(timing.seconds_of_round(call, device, REPEATS[device]), device=torch_device)
        distributed.all_reduce(taken, distributed.ReduceOp.MAX)
        seconds[size] = taken.item()
    if rank == 0:
        results.put(seconds)
    distributed.destroy_process_group()


def _backend(device: str) -> str:
    if device == "cpu":
        return "gloo"
    import torch

    return "NCCL " + ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def nvidia_smi(*words: str) -> str:
    """The output of `nvidia-smi`; empty if it is missing or fails."""
    try:
        done = subprocesses.run(["nvidia-smi", *words], 60, os.environ)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
