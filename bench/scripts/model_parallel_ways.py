"""One way to train a BERT on several ranks: its memory, bytes and time. For the ranks of bench.model_parallel_sharding.

It is imported in processes in which `smdistributed` is a top-level package.
"""

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from new_start import start
from rank_memory import growth, rss

from bench.scripts.model_parallel_bert import Shape, calls_of, loss_of
from bench.scripts.wire_bytes import least_bytes

STEPS, WARM_UP = 7, 3
Trained = tuple[Any, torch.optim.Optimizer, Callable[[], None]]
"""A model, its optimizer, and a function that takes one step with them."""


def sent_bytes() -> int:
    """The bytes that all processes of this network namespace have sent."""
    (line,) = [each for each in Path("/proc/net/dev").read_text().splitlines() if each.strip().startswith("lo:")]
    return int(line.split()[9])


def local(tensor: Any) -> torch.Tensor:
    """This rank's part of a DTensor; other tensors as they are."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # type: ignore[no-any-return]


def own_rows(shape: Shape, part: int, parts: int) -> list[torch.Tensor]:
    return [each.chunk(parts)[part] for each in shape.batch()]


def library_step(shape: Shape, config: Mapping[str, Any]) -> Trained:
    """Training with the library."""
    start({"ddp": True, **config})
    plain = shape.model()
    if smp.tp_size() > 1:
        smp.set_tensor_parallelism(plain.bert, distribute_embedding=True)
    model = smp.DistributedModel(plain)
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=1e-4))
    prescaled = smp.state.cfg.prescaled_batch
    batch = own_rows(shape, *((smp.rdp_rank(), smp.rdp_size()) if prescaled else (smp.dp_rank(), smp.dp_size())))

    @smp.step
    def train_step(model: Any, *tensors: torch.Tensor) -> None:
        model.backward(loss_of(model, tensors))

    def step() -> None:
        train_step(model, *batch)
        optimizer.step()
        for parameter in model.local_parameters():
            parameter.grad = None

    return model, optimizer, step


def torch_step(shape: Shape, kind: str) -> Trained:
    """Training with torch alone. kind: `DTensor` (tensor parallelism) or `FSDP2`."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if not smp.is_initialized():
        start({"ddp": True})
    model, mesh = shape.model(), init_device_mesh("cpu", (dist.get_world_size(),))
    batch = own_rows(shape, dist.get_rank(), dist.get_world_size()) if kind == "FSDP2" else list(shape.batch())
    for layer in model.bert.encoder.layer:
        if kind == "FSDP2":
            fully_shard(layer, mesh=mesh)
        else:
            columns = [f"attention.self.{name}" for name in ("query", "key", "value")] + ["intermediate.dense"]
            rows = ("attention.output.dense", "output.dense")
            styles = {**{name: ColwiseParallel() for name in columns}, **{name: RowwiseParallel() for name in rows}}
            parallelize_module(layer, mesh, styles)
    if kind == "FSDP2":
        fully_shard(model, mesh=mesh)
    # foreach refuses lists of DTensors and plain tensors.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=kind == "FSDP2")

    def step() -> None:
        loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step


def least_between_partitions(shape: Shape, model: Any) -> int:
    """The least bytes that the partitions of all ranks exchange in a step."""
    count = smp.num_microbatches()
    part = [each.chunk(count)[0] for each in shape.batch()]
    return smp.tp_size() * count * least_bytes(calls_of(shape.model(), model._plan, part))


def made(shape: Shape, way: str, config: Mapping[str, Any]) -> Any:
    return torch_step(shape, way) if way in ("DTensor", "FSDP2") else library_step(shape, config)


def way(shape: Shape, way: str, config: Mapping[str, Any]) -> dict[str, float]:
    """This rank's parts of parameters and moments, peak memory, bytes of a step of all ranks, seconds of a step."""
    base, parameters = rss(), sum(each.numel() for each in shape.model().parameters())
    model, optimizer, step = made(shape, way, config)
    for _ in range(WARM_UP):
        step()
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    sent, seconds = [], []

    def steps() -> None:
        for _ in range(STEPS):
            dist.barrier()
            before, began = sent_bytes(), time.perf_counter()
            step()
            dist.barrier()
            seconds.append(time.perf_counter() - began)
            sent.append(sent_bytes() - before)

    peak = rss() - base + growth(steps)
    held = model.local_parameters() if isinstance(model, smp.DistributedModel) else model.parameters()
    moments = [each for values in optimizer.state.values() for each in values.values() if each.dim()]
    return {
        "parameters": sum(local(each).numel() for each in held) / parameters,
        "moments": sum(local(each).numel() for each in moments) / parameters / 2,
        "peak": peak,
        "sent": statistics.median(sent),
        "seconds": statistics.median(seconds),
        "least": least_between_partitions(shape, model) if smp.pp_size() > 1 else 0,
    }


def paired(shape: Shape, config: Mapping[str, Any], rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of the library with this configuration, DTensor and FSDP2, which take turns in one launch."""
    trained = {"library": library_step(shape, config)}
    trained |= {name: torch_step(shape, name) for name in ("DTensor", "FSDP2")}
    steps = {name: step for name, (_, _, step) in trained.items()}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for place in range(WARM_UP + rounds):
        for name, step in steps.items():
            dist.barrier()
            began = time.perf_counter()
            step()
            dist.barrier()
            if place >= WARM_UP:
                seconds[name].append(time.perf_counter() - began)
    return seconds
