"""Runs a step on the ranks of one replica: the first rank coordinates, the others serve their modules."""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from .coordinator import Coordinator, Schedule
from .messages import Hello, StepOutcome, meta_of
from .remote import pack, unpack
from .seeds import mixed, seeded
from .server import ModuleServer
from .stand_in import call_in_runs, can_run_at_once, redirect_module, runs
from .tensor.exchange import compare_exchanges
from .tensor.thread import microbatch
from .wire import Wire

Bodies = Callable[[], Sequence[Callable[[], Any]]]
"""Splits the batch and returns the step function per microbatch. Called only on the rank that runs the step."""


class StepResult(NamedTuple):
    """The function's result per microbatch, and whether it called model.backward."""

    outputs: list[Any]
    went_backward: bool


class Alone:
    """The only rank of its replica: runs one microbatch after the other."""

    running = False
    """Whether a step runs."""

    def __init__(self) -> None:
        self._went_backward = False

    def run(self, hello: Hello, bodies: Bodies, seed: int) -> StepResult:
        """Run a step."""
        seed = mixed(seed, hello.steps)
        self._went_backward, self.running = False, True
        try:
            outputs = []
            for index, body in enumerate(bodies()):
                with seeded(mixed(seed, index)), microbatch(index):
                    outputs.append(body())
                    compare_exchanges()
            return StepResult(outputs, self._went_backward)
        finally:
            self.running = False

    def backward(self, tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None] | None) -> None:
        """torch's own backward pass."""
        self._went_backward = True
        compare_exchanges()
        torch.autograd.backward(tensors, gradients)


class First:
    """pp_rank 0: runs the script's step function."""

    def __init__(self, wire: Wire, servers: Sequence[int], named: Mapping[str, Any], schedule: Schedule) -> None:
        self._coordinator = Coordinator(wire, servers, named, schedule)

    @property
    def running(self) -> bool:
        """Whether this thread runs a microbatch."""
        return self._coordinator.runs_here

    def ask(self, names: tuple[str, ...], owner: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call modules of another rank."""
        return self._coordinator.call(names, owner, args, kwargs)

    def run(self, hello: Hello, bodies: Bodies, seed: int) -> StepResult:
        """Run a step on all ranks of the replica; an error on one is raised on all."""
        seed = mixed(seed, hello.steps)
        self._coordinator.open(hello, seed)
        outputs: list[Any] = []
        error: BaseException | None = None
        try:
            outputs = self._coordinator.run(hello.function, bodies(), seed)
            packed, tensors = pack(outputs)
        except BaseException as raised:
            error = raised
        remote = self._coordinator.finish()
        if error is not None or remote is not None:
            reason = "".join(traceback.format_exception(error)) if error is not None else remote
            self._coordinator.tell(StepOutcome(f"The step {hello.function} failed. {reason}"))
            raise error if error is not None else RuntimeError(remote)
        went_backward = self._coordinator.went_backward
        self._coordinator.tell(StepOutcome(None, packed, tuple(map(meta_of, tensors)), 0, went_backward), tensors)
        return StepResult(outputs, went_backward)

    def backward(self, tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None] | None) -> None:
        """The backward pass through all ranks."""
        self._coordinator.backward(tensors, gradients)


class Other:
    """Another rank: serves its modules when the script calls the step function, without running the function."""

    running = False

    def __init__(self, wire: Wire, coordinator: int, named: Mapping[str, Any], *, in_order: bool) -> None:
        self._server = ModuleServer(wire, coordinator, named, in_order=in_order)

    def run(self, hello: Hello, bodies: Bodies, seed: int) -> StepResult:
        """Serve a step. RuntimeError with the traceback of the rank that failed."""
        outcome, tensors = self._server.run(hello.function, hello.steps)
        if outcome.error is not None:
            raise RuntimeError(outcome.error)
        return StepResult(unpack(outcome.packed, tensors), outcome.went_backward)

    def backward(self, tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None] | None) -> None:
        """Never called, because the function runs on pp_rank 0."""
        raise AssertionError


Ask = Callable[[tuple[str, ...], int, tuple[Any, ...], dict[str, Any]], Any]


def put_stand_ins(root: nn.Module, plan: Mapping[str, int], ranks: Sequence[int], own_partition: int, ask: Ask) -> None:
    """Redirect the calls of other ranks' modules; consecutive ones in an nn.Sequential share one request.

    ranks: the pipeline's ranks by partition. own_partition: this rank's partition.
    """
    owner_of = {id(root.get_submodule(name)): index for name, index in plan.items()}
    name_of = {id(root.get_submodule(name)): name for name in plan}
    if own_partition == 0:
        for module in list(root.modules()):
            if can_run_at_once(module) and id(module) not in owner_of:
                _merge(module, owner_of, name_of, ranks, ask)
    for name, index in plan.items():
        if index != own_partition:
            redirect_module(root.get_submodule(name), _asking(ask, name, ranks[index]))


def _merge(
    sequential: nn.Module, owner_of: Mapping[int, int], name_of: Mapping[int, str], ranks: Sequence[int], ask: Ask
) -> None:
    children = dict(sequential._modules)
    owners = [owner_of.get(id(child), 0) for child in children.values()]
    # Children that are not in the plan run here, including those that contain modules of the plan.
    grouped = runs(list(children), owners)
    if any(owner and len(names) > 1 for names, owner in grouped):
        assert isinstance(sequential, nn.Sequential)
        call_in_runs(
            sequential,
            grouped,
            lambda run, value: ask(tuple(name_of[id(children[name])] for name in run[0]), ranks[run[1]], (value,), {}),
        )


def _asking(ask: Ask, name: str, owner: int) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    return lambda args, kwargs: ask((name,), owner, args, kwargs)
