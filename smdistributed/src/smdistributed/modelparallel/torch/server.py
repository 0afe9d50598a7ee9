"""The owner of modules: handles the coordinator's requests in order.

A thread reads requests ahead. Over gloo it also starts to receive their tensors, so that transfers overlap with
computation; over NCCL the loop does, because receives and sends must start in the order of the requests. A failure does
not stop the loop, so that no rank waits forever: until the end of the step it sends payloads without data, and
then the traceback.
"""

import itertools
import queue
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import nn

from .gradients import GradientsInOrder
from .in_place import WithArguments, can_change, input_name
from .messages import (
    AddGradient,
    Backward,
    Call,
    EndMicrobatch,
    Expect,
    Finish,
    Form,
    Hello,
    Meta,
    Modes,
    Opening,
    Push,
    Request,
    SendGradient,
    ServerStatus,
    StepOutcome,
    in_modes,
    meta_of,
)
from .remote import GradientHolder, arrive, pack, same_form, unpack, version
from .seeds import seeded
from .stand_in import local_parameters
from .state import state
from .tensor.thread import microbatch as microbatch_of_thread
from .watch import RankLost
from .wire import Incoming, Poisoned, TransferError, Wire

MOST_FORMS = 4096
"""The most forms of results to remember."""


@dataclass
class Graph:
    """A call that waits for its backward pass: its results and inputs, by number."""

    results: list[tuple[int, torch.Tensor]]
    inputs: list[tuple[int, GradientHolder]]


@dataclass
class MicrobatchState:
    """One microbatch's tensors, gradients and graphs on this rank, by number."""

    values: dict[int, torch.Tensor] = field(default_factory=dict)
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    graphs: dict[int, Graph] = field(default_factory=dict)

    def add_gradient(self, number: int, gradient: torch.Tensor | None) -> None:
        """Add to the gradient of a tensor."""
        if gradient is not None:
            earlier = self.gradients.get(number)
            self.gradients[number] = gradient if earlier is None else earlier + gradient


class ArgumentSnapshot(NamedTuple):
    """Arguments before a call: their tensors and the tensors' versions; the rest packed if a module could change it."""

    arguments: Any
    inputs: Sequence[torch.Tensor]
    versions: list[int]
    packed: bytes | None


class StepMismatch(RuntimeError):
    """The ranks of a pipeline do not call the same step functions in the same order."""


class ModuleServer:
    """Runs the modules of this rank. named: the model's modules and parameters by name.

    in_order: sum gradients in the order of the microbatches.
    """

    def __init__(self, wire: Wire, coordinator: int, named: Mapping[str, Any], *, in_order: bool) -> None:
        self._wire, self._coordinator, self._named = wire, coordinator, named
        self._ids = {id(each): name for name, each in named.items() if isinstance(each, nn.Module)}
        self._in_order = GradientsInOrder(local_parameters(named)) if in_order else None
        self._forms: dict[int, Form] = {}
        self._microbatches: dict[int, MicrobatchState] = {}
        self._expected: dict[int, Incoming] = {}
        """Tensors from other owners that no request has used yet, by transfer."""
        self._status, self._step = ServerStatus(), 0
        self._handlers: Mapping[type, Callable[[Any, list[Incoming]], None]] = {
            Call: self._call,
            Push: self._push,
            Expect: self._keep,
            Backward: self._backward,
            SendGradient: self._send_gradient,
            AddGradient: self._add_gradient,
            EndMicrobatch: self._release,
        }

    def run(self, function: str, steps: int) -> tuple[StepOutcome, list[Any]]:
        """One step: how it ended, and the tensors of its outputs. StepMismatch if the ranks call different steps."""
        self._status, self._microbatches, self._expected, self._step = ServerStatus(), {}, {}, steps
        if self._in_order:
            self._in_order.begin()
        self._wire.send(self._coordinator, Hello(function, steps))
        opening: Opening = self._wire.receive(self._coordinator)
        if opening.error:
            self._wire.drain()
            raise StepMismatch(opening.error)
        requests: queue.SimpleQueue[tuple[Request, list[Incoming] | None] | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._read_ahead, args=(requests,), daemon=True).start()
        while True:
            item = requests.get()
            if isinstance(item, BaseException):
                raise item
            request, incoming = item
            if isinstance(request, Finish):
                break
            self._handlers[type(request)](request, self._expect(request) if incoming is None else incoming)
        return self._end()

    def _end(self) -> tuple[StepOutcome, list[Any]]:
        self._microbatches = {}
        self._wire.send(self._coordinator, self._status)
        outcome: StepOutcome = self._wire.receive(self._coordinator)
        tensors: list[Any] = []
        if outcome.metas:
            tensors = self._wire.expect_tensors(self._coordinator, outcome.transfer, outcome.metas).wait()
        self._wire.drain()
        return outcome, tensors

    def _read_ahead(self, requests: "queue.SimpleQueue[Any]") -> None:
        try:
            request = None
            while not isinstance(request, Finish):
                request = self._wire.receive(self._coordinator)
                requests.put((request, None if self._wire.in_one_order else self._expect(request)))
        except BaseException as error:  # passed on to the loop, which waits for this thread
            requests.put(error)

    def _expect(self, request: Request) -> list[Incoming]:
        """Start to receive the payloads of a request, in the order in which they were sent."""
        if isinstance(request, Expect):
            return [self._wire.expect_tensors(request.source, request.transfer, [request.meta])]
        metas: list[Meta] = []
        if isinstance(request, Call):
            metas = [meta for _, meta in request.puts]
        elif isinstance(request, AddGradient) and request.meta is not None:
            metas = [request.meta]
        else:
            return []
        return [self._wire.expect_tensors(self._coordinator, request.transfer, metas)] if metas else []

    def _keep(self, request: Expect, incoming: list[Incoming]) -> None:
        self._expected[request.transfer] = incoming[0]

    def _state(self, microbatch: int) -> MicrobatchState:
        return self._microbatches.setdefault(microbatch, MicrobatchState())

    def _failed(self, error: BaseException) -> None:
        """Keep the first failure; it is reported at the end of the step."""
        if self._status.error is None:
            # A Poisoned payload or RankLost means that another rank failed; any other error is this rank's.
            self._status = ServerStatus(traceback.format_exc(), not isinstance(error, Poisoned | RankLost))
            if state.exchanges is not None and self._status.caused:
                # Ranks of the tensor parallel group wait for this one in the middle of the step.
                state.watch.step_failed(self._status.error or "", self._step)

    def _call(self, request: Call, incoming: list[Incoming]) -> None:
        for number in request.free:
            self._state(request.microbatch).values.pop(number, None)
        form = None
        try:
            self._store(request, incoming)
            if self._status.error is None:
                form = self._compute(request)
        except Exception as error:
            self._failed(error)
        if request.expected is None:
            self._wire.send(self._coordinator, form)

    def _store(self, request: Call, incoming: list[Incoming]) -> None:
        values = self._state(request.microbatch).values
        moved = [self._expected.pop(move.transfer) for move in request.moves]
        payloads = [each.wait() for each in (*incoming, *moved)]
        numbers = [number for number, _ in request.puts] + [move.number for move in request.moves]
        for number, tensor in zip(numbers, [tensor for each in payloads for tensor in each], strict=True):
            assert tensor is not None
            values[number] = tensor

    def _compute(self, request: Call) -> Form:
        kept = self._state(request.microbatch)
        inputs: list[torch.Tensor] = []
        holders: list[tuple[int, GradientHolder]] = []
        for number, wants_gradient in request.inputs:
            value = kept.values[number].detach()
            if wants_gradient and request.modes.grad:
                holders.append((number, GradientHolder()))
                value = arrive(value, holders[-1][1])
            inputs.append(value)
        args, kwargs = arguments = unpack(request.arguments, inputs, self._named)
        before = self._snapshot(arguments, inputs)
        modules = [self._named[name] for name in request.names]
        set_training(modules, request.modes)
        with in_modes(request.modes), microbatch_of_thread(request.microbatch):
            for module, seed in zip(modules, request.seeds, strict=True):
                with seeded(seed):
                    result = module(*args, **kwargs)
                args, kwargs = (result,), {}
        form, tensors = self._form(request.names[0], result, before)
        self._check(request, form)
        results = [(request.results + place, tensor) for place, tensor in enumerate(tensors)]
        kept.values.update({number: tensor.detach() for number, tensor in results})
        if request.modes.grad:
            kept.graphs[request.results] = Graph([each for each in results if each[1].requires_grad], holders)
        return form

    def _snapshot(self, arguments: Any, inputs: Sequence[torch.Tensor]) -> ArgumentSnapshot:
        args, kwargs = arguments
        packed = pack(arguments, self._known(inputs))[0] if can_change((*args, *kwargs.values())) else None
        return ArgumentSnapshot(arguments, inputs, [version(each) for each in inputs], packed)

    def _known(self, inputs: Sequence[torch.Tensor | None]) -> dict[int, str]:
        return {**self._ids, **{id(each): input_name(place) for place, each in enumerate(inputs) if each is not None}}

    def _form(self, name: str, result: Any, before: ArgumentSnapshot) -> tuple[Form, list[torch.Tensor]]:
        """The form and tensors of a result, including arguments that the module changed in place."""
        inputs = before.inputs
        changed = [version(each) != old for each, old in zip(inputs, before.versions, strict=True)]
        try:
            if before.packed is not None and pack(before.arguments, self._known(inputs))[0] != before.packed:
                result = WithArguments(result, before.arguments)
        except TypeError as error:
            raise TypeError(f"{name} changed an argument in place. {error}") from error
        known = self._known([None if is_changed else each for each, is_changed in zip(inputs, changed, strict=True)])
        packed, tensors = pack((result, list(itertools.compress(inputs, changed))), known)
        places = {id(each): place for place, each in enumerate(tensors)}
        pairs = tuple((place, places[id(each)]) for place, each in enumerate(inputs) if changed[place])
        return Form(packed, tuple(meta_of(each) for each in tensors), pairs), tensors

    def _check(self, request: Call, form: Form) -> None:
        """RuntimeError if the result's form is not the one that the coordinator assumed without waiting."""
        if request.expected is None:
            if len(self._forms) < MOST_FORMS:
                self._forms[request.results] = form
            return
        expected = self._forms[request.expected]
        alike = (expected.metas, expected.changed) == (form.metas, form.changed)
        if not alike or not same_form(expected.packed, form.packed, len(form.metas)):
            before, now = ([tuple(meta.shape) for meta in each.metas] for each in (expected, form))
            raise RuntimeError(
                f"{' → '.join(request.names)} returned {now} for inputs that look like earlier ones, for which it "
                f"returned {before}; the result's form must depend only on the inputs' shapes, so put the module on "
                "partition 0, with smp.set_partition and auto_partition false."
            )

    def _push(self, request: Push, incoming: list[Incoming]) -> None:
        failed = self._status.error is not None
        tensors = None if failed else [self._state(request.microbatch).values[request.number]]
        self._wire.send_tensors(request.destination, request.transfer, [request.meta], tensors)

    def _backward(self, request: Backward, incoming: list[Incoming]) -> None:
        if self._status.error is not None:
            return
        kept = self._state(request.microbatch)
        try:
            graph = kept.graphs.pop(request.call)
            results = [(tensor, kept.gradients.pop(number, None)) for number, tensor in graph.results]
            reached = [(tensor, gradient) for tensor, gradient in results if gradient is not None]
            if reached:
                part = self._in_order and self._in_order.part(request.microbatch, request.backward_pass)
                with part or nullcontext(), microbatch_of_thread(request.microbatch):
                    torch.autograd.backward([tensor for tensor, _ in reached], [gradient for _, gradient in reached])
            for number, holder in graph.inputs:
                kept.add_gradient(number, holder.take())
        except Exception as error:
            self._failed(error)

    def _send_gradient(self, request: SendGradient, incoming: list[Incoming]) -> None:
        failed = self._status.error is not None
        tensors = None if failed else [self._state(request.microbatch).gradients.pop(request.number, None)]
        self._wire.send_tensors(request.destination, request.transfer, [request.meta], tensors)

    def _add_gradient(self, request: AddGradient, incoming: list[Incoming]) -> None:
        try:
            (source,) = incoming or [self._expected.pop(request.transfer)]
            self._state(request.microbatch).add_gradient(request.number, source.wait()[0])
        except (Poisoned, TransferError) as error:
            self._failed(error)

    def _release(self, request: EndMicrobatch, incoming: list[Incoming]) -> None:
        self._microbatches.pop(request.microbatch, None)
        if self._in_order:
            self._in_order.end(request.microbatch)


def training_of(modules: list[nn.Module]) -> bytes:
    """One byte per module and submodule: whether it is in training mode."""
    return bytes(each.training for module in modules for each in module.modules())


def set_training(modules: list[nn.Module], modes: Modes) -> None:
    """Copy the training modes of the rank that runs the step, where a script may call train() or eval() in the step."""
    below = [each for module in modules for each in module.modules()]
    for each, training in zip(below, modes.training, strict=True):
        each.training = bool(training)
