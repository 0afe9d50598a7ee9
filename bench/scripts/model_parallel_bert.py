"""A BERT with partitions: the program of the ranks in bench.model_parallel_memory and bench.model_parallel_overlap.

It is imported in processes in which `smdistributed` is a top-level package.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from new_start import start
from rank_memory import growth, peak_of_sends
from torch import nn
from torch.utils._pytree import tree_leaves
from transformers import BertConfig, BertForQuestionAnswering

from bench.scripts.wire_bytes import ModuleCall, TensorUse, least_bytes

__all__ = ["Shape", "gathered", "memory", "overlap", "peak_of_sends"]
"""What bench.scripts.model_parallel_launch calls by name."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model and its batches. In every second text a quarter of the `length` tokens is padding."""

    layers: int
    hidden: int
    rows: int
    length: int
    words: int

    def model(self) -> BertForQuestionAnswering:
        """A model without dropout, always with the same weights."""
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=self.words,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=max(1, self.hidden // 64),
            intermediate_size=4 * self.hidden,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return BertForQuestionAnswering(config).train()

    def batch(self) -> tuple[torch.Tensor, ...]:
        """Token ids, mask, start and end positions."""
        random = torch.Generator().manual_seed(0)
        mask = torch.ones(self.rows, self.length, dtype=torch.long)
        mask[::2, self.length - self.length // 4 :] = 0
        ids = torch.randint(0, self.words, (self.rows, self.length), generator=random)
        return ids, mask, *torch.randint(0, self.length // 2, (2, self.rows), generator=random)


def loss_of(model: Any, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The loss that transformers computes."""
    ids, mask, starts, ends = tensors
    output = model(input_ids=ids, attention_mask=mask, start_positions=starts, end_positions=ends)
    return output.loss  # type: ignore[no-any-return]


# ---- memory ----


@dataclass
class SavedTensors:
    """Counts what autograd keeps for the backward pass: bytes of storages, each once, except those in `parameters`.

    The lock is needed because a graph may be freed while another thread of the rank computes.
    """

    parameters: set[int] = field(default_factory=set)
    peak: int = 0
    _now: int = 0
    _users: dict[int, int] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the tensors that this thread's forward passes save."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda packed: packed.tensor):
            yield

    def _pack(self, tensor: torch.Tensor) -> "_SavedTensor":
        tensor = tensor.detach()  # an undetached result would keep its operation, and so itself, alive
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if place in self.parameters:
            return _SavedTensor(tensor, None)
        with self._lock:
            self._users[place] = self._users.get(place, 0) + 1
            if self._users[place] == 1:
                self._now += size
                self.peak = max(self.peak, self._now)

        def release() -> None:
            with self._lock:
                self._users[place] -= 1
                if not self._users[place]:
                    del self._users[place]
                    self._now -= size

        return _SavedTensor(tensor, release)


class _SavedTensor:
    """A tensor that autograd keeps; calls `release` when it is freed."""

    def __init__(self, tensor: torch.Tensor, release: Callable[[], None] | None) -> None:
        self.tensor, self._release = tensor, release

    def __del__(self) -> None:
        if self._release is not None:
            self._release()


def memory(shape: Shape, partitions: int, microbatches: int, steps: int = 2) -> dict[str, int]:
    """The bytes of this rank after some steps of AdamW, by kind."""
    start({"partitions": partitions, "microbatches": microbatches})
    plain = shape.model()
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(plain.parameters()))
    model, saved = smp.DistributedModel(plain), SavedTensors()

    @smp.step
    def train_step(model: Any, *tensors: torch.Tensor) -> torch.Tensor:
        with saved.counted():  # in the microbatch's thread
            loss = loss_of(model, tensors)
            model.backward(loss)
        return loss

    for _ in range(steps):
        if model.partitioned:
            saved.parameters = {each.untyped_storage().data_ptr() for each in model.local_parameters()}
            saved.peak = 0
        optimizer.zero_grad()
        with saved.counted():  # in the modules that this rank serves
            train_step(model, *shape.batch())
        optimizer.step()
    own = list(model.local_parameters())
    moments = [each for state in optimizer.local_state_dict()["state"].values() for each in state.values()]
    return {
        "parameters": sum(each.nbytes for each in own),
        "gradients": sum(each.grad.nbytes for each in own if each.grad is not None),
        "optimizer": sum(each.nbytes for each in moments if isinstance(each, torch.Tensor)),
        "activations": saved.peak,
    }


def gathered(shape: Shape, partitions: int) -> dict[str, int]:
    """How far this rank's memory grows while the states of all partitions are gathered, by call, in bytes."""
    start({"partitions": partitions, "microbatches": 1})
    plain = shape.model()
    optimizer = smp.DistributedOptimizer(torch.optim.AdamW(plain.parameters()))
    model = smp.DistributedModel(plain)

    @smp.step
    def train_step(model: Any, *tensors: torch.Tensor) -> None:
        model.backward(loss_of(model, tensors))

    train_step(model, *shape.batch())
    optimizer.step()
    optimizer.zero_grad()

    def save() -> None:
        with tempfile.TemporaryDirectory(prefix="berth-checkpoint-") as folder:
            path = smp.allgather(folder, smp.WORLD)[0]
            smp.save_checkpoint(path, "whole", partial=False, model=model, optimizer=optimizer)

    own = list(model.local_parameters())
    return {
        "own parameters": sum(each.nbytes for each in own),
        "largest tensor": max(each.nbytes for each in own),
        "model.state_dict()": growth(model.state_dict),
        "model.state_dict(gather_to_rank0=True)": growth(lambda: model.state_dict(gather_to_rank0=True)),
        "smp.save_checkpoint(partial=False)": growth(save),
    }


# ---- overlap ----


def calls_of(model: nn.Module, plan: dict[str, int], tensors: Sequence[torch.Tensor]) -> list[ModuleCall]:
    """The calls of the plan's modules in one forward pass."""
    calls: list[ModuleCall] = []
    alive: list[Any] = []  # keeps ids unique

    def uses_of(tree: Any) -> tuple[TensorUse, ...]:
        alive.append(tree)
        leaves = [each for each in tree_leaves(tree) if isinstance(each, torch.Tensor)]
        return tuple(TensorUse(id(each), each.nbytes, each.requires_grad) for each in leaves)

    def hook(name: str) -> Callable[..., None]:
        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            calls.append(ModuleCall(plan[name], uses_of((args, kwargs)), uses_of(output)))

        return after

    handles = [model.get_submodule(name).register_forward_hook(hook(name), with_kwargs=True) for name in plan]
    loss_of(model, tensors)
    for handle in handles:
        handle.remove()
    return calls


CUTS: dict[str, dict[str, Any]] = {
    "coarse": {"auto_partition": False, "default_partition": 0},
    "automatic": {},
}


def overlap(shape: Shape, cut: str, microbatches: int, rounds: int) -> dict[str, Any]:
    """Alternate one process, two independent ones and two partitions.

    Returns their median seconds, the medians of one process' and of two processes' time by that of the partitions, and
    the bytes sent in a step.
    """
    start({"partitions": 2, "microbatches": microbatches, **CUTS[cut]})
    plain, alone, batch = shape.model(), shape.model(), shape.batch()
    if cut == "coarse":
        for place, layer in enumerate(plain.bert.encoder.layer):
            smp.set_partition(layer, int(2 * place >= shape.layers))
        smp.set_partition(plain.qa_outputs, 1)
    model = smp.DistributedModel(plain)

    @smp.step
    def train_step(model: Any, *tensors: torch.Tensor) -> None:
        model.backward(loss_of(model, tensors))

    def one() -> None:
        for part in zip(*(each.chunk(microbatches) for each in batch), strict=True):
            (loss_of(alone, part) / microbatches).backward()
        alone.zero_grad()

    def two() -> None:
        train_step(model, *batch)
        for parameter in model.local_parameters():
            parameter.grad = None

    two()  # the first step records shapes, the second one uses them
    two()
    before = model._wire.sent_bytes
    two()
    sent = sum(smp.allgather(model._wire.sent_bytes - before, smp.PP_GROUP))
    times: dict[str, list[float]] = {"one": [], "both": [], "two": []}
    for place in range(rounds + 1):
        for name, function in (("one", one), ("both", one), ("two", two)):
            smp.barrier()
            began = time.perf_counter()
            if name != "one" or smp.rank() == 0:
                function()
            if place:  # the first round is warm-up
                times[name].append(time.perf_counter() - began)
    part = [each.chunk(microbatches)[0] for each in batch]
    least = microbatches * least_bytes(calls_of(alone, model._plan, part))
    medians = {name: statistics.median(each) for name, each in times.items()}
    # The ratio is taken per round, because the machine's speed drifts by more than the measured difference.
    by_two = {
        f"{name} by two": statistics.median(one / two for one, two in zip(times[name], times["two"], strict=True))
        for name in ("one", "both")
    }
    return {"cut": cut, "microbatches": microbatches, "sent": sent, "least": least, **by_two, **medians}


def overlaps(shape: Shape, cases: Sequence[tuple[str, int]], rounds: int) -> list[dict[str, Any]]:
    """Measure all cases; a case is a cut and a number of microbatches."""
    return [overlap(shape, cut, microbatches, rounds) for cut, microbatches in cases]
