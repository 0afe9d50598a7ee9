"""This process as one rank of a job: its process group, and checks that the ranks really train together.

With transformers 5 two ranks on a CPU each train alone on the same data, without a warning, if one setting (use_cpu) is
missing. So run_qa starts the group itself, and every rank checks in each step that its model is wrapped, and after the
last step that all weights are equal.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from berth.contract.errors import JobError
from berth.contract.words import counted
from berth.runtime.rank import Rank

SMDDP = "smdistributed.dataparallel.torch.torch_smddp"
"""The module of SageMaker's data parallel library that registers the backend `smddp`."""


def start_group(rank: Rank, backend: str, timeout: int, *, cuda: bool) -> None:
    """Start the process group if the job has several ranks; `timeout` is in seconds. Raises JobError if this host has
    fewer GPUs than ranks.
    """
    if cuda and rank.local_world_size > (gpus := torch.cuda.device_count()):
        raise JobError(
            f"This host has {counted(gpus, 'GPU')} and runs {rank.local_world_size} ranks, which need one each: run "
            f"{gpus} (processes_per_host, or torchrun's --nproc-per-node), or set use_cpu to true."
        )
    if cuda:
        torch.cuda.set_device(rank.local_rank)
    if rank.world_size > 1:
        if backend == "smddp":
            importlib.import_module(SMDDP)
        dist.init_process_group(backend, rank=rank.rank, world_size=rank.world_size, timeout=timedelta(seconds=timeout))


def end_group() -> None:
    """Leave the process group, if there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def group_device() -> torch.device:
    """The device that a collective's tensors must be on: the one that the ranks train on."""
    on_gpu = dist.get_backend() != "gloo" and torch.cuda.is_available()
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def gather(content: Any, rank: Rank) -> list[Any]:
    """Return every rank's `content`, in the order of ranks, on every rank. It is sent as JSON: lists, texts, numbers.

    Not as pickle: unpickling can run code, and the ports of a process group do not authenticate the sender.
    """
    return [json.loads(data) for data in _gather_bytes(json.dumps(content).encode(), rank)]


def gather_floats(values: np.ndarray, rank: Rank) -> list[np.ndarray]:
    """Return every rank's float32 numbers (any count,) on every rank.

    They are sent as bytes, because JSON would be five times as large.
    """
    return [np.frombuffer(data, np.float32) for data in _gather_bytes(values.astype(np.float32).tobytes(), rank)]


def from_leader(content: Any, rank: Rank) -> Any:
    """Return rank 0's `content` on every rank."""
    return json.loads(_gather_bytes(json.dumps(content).encode() if rank.leads else b"", rank)[0])


def _gather_bytes(data: bytes, rank: Rank) -> list[bytes]:
    """Every rank's bytes, with all_gather only, on the device that the ranks train on.

    torch's object collectives use a device that the backend declares, which may be the CPU for `smddp`. And that
    backend does not allow a second group over gloo.
    """
    if rank.world_size == 1:
        return [data]
    device = group_device()
    size = torch.tensor([len(data)], dtype=torch.int64, device=device)
    sizes = [torch.zeros_like(size) for _ in range(rank.world_size)]
    dist.all_gather(sizes, size)
    lengths = [int(each.item()) for each in sizes]
    mine = torch.zeros(max(lengths), dtype=torch.uint8, device=device)
    if data:
        mine[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    everyone = [torch.empty_like(mine) for _ in range(rank.world_size)]
    dist.all_gather(everyone, mine)
    return [each[:length].cpu().numpy().tobytes() for each, length in zip(everyone, lengths, strict=True)]


def check_settings(rank: Rank, training: Mapping[str, Any]) -> None:
    """Raises JobError if the ranks have different settings: they would wait for each other at different places, until
    `ddp_timeout`. All ranks must call it.
    """
    everyone = gather({name: repr(value) for name, value in training.items() if name != "output_dir"}, rank)
    for name in sorted(set().union(*everyone)):
        values = [each.get(name, "nothing") for each in everyone]
        odd = next((number for number, value in enumerate(values) if value != values[0]), 0)
        if odd:
            raise JobError(
                f"{name} is {values[0]} on rank 0 and {values[odd]} on rank {odd}: give all hosts the same "
                "hyperparameters and the same instance type, and mount the checkpoint folder on all of them or on none."
            )


def check_wrapped(rank: Rank, model: torch.nn.Module) -> None:
    """Raises JobError unless the model that is about to train exchanges its gradients with the other ranks."""
    bare = getattr(model, "_orig_mod", model)  # torch.compile may be around the wrapper
    names = {cls.__name__ for cls in type(bare).__mro__}
    wrapped = names & {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
    if rank.world_size > 1 and not wrapped:
        raise JobError(
            f"On rank {rank.rank} the model is {type(model).__name__} and not wrapped to exchange gradients with the "
            "other ranks: each would train alone, so the job stops; report this with the log."
        )


def fingerprint(model: torch.nn.Module) -> str:
    """SHA-256 of the names and bytes of all weights, sorted by name."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_equal(rank: Rank, model: torch.nn.Module) -> str:
    """Return the fingerprint of the weights if it is the same on all ranks. Raises JobError otherwise."""
    prints = gather(fingerprint(model), rank)
    if len(set(prints)) > 1:
        odd = [str(index) for index, each in enumerate(prints) if each != prints[0]]
        raise JobError(
            f"The weights of ranks {', '.join(odd)} differ from rank 0's: they did not train together, so no model is "
            "written; report this with the log."
        )
    return str(prints[0])


def share_weights(rank: Rank, model: torch.nn.Module) -> None:
    """Send the weights of rank 0 to every rank: only rank 0 may have had the best checkpoint on its disk."""
    if rank.world_size > 1:
        for weight in model.state_dict().values():
            dist.broadcast(weight, src=0)
