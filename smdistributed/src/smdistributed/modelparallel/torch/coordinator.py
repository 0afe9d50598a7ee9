"""Runs the script's step function on pp_rank 0: one thread per microbatch, only one of which runs at a time.

Calls of other ranks' modules and transfers of tensors between ranks are recorded on the microbatch's tape; the backward
pass replays it in reverse. Requests go through the outbox.
"""

import itertools
import threading
import weakref
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from .backward import BackwardPass, received
from .baton import Baton, Key, Priority
from .gradients import GradientsInOrder
from .in_place import as_in_one_process, input_name
from .messages import (
    Call,
    EndMicrobatch,
    Finish,
    Form,
    Hello,
    Move,
    Opening,
    Push,
    ServerStatus,
    StepOutcome,
    current_modes,
    meta_of,
)
from .outbox import Outbox
from .remote import Departure, GradientHolder, Handle, RemoteTensor, arrive, change, local, pack, unpack, version
from .seeds import begin_stream, draw, may_draw, mixed, random_state, set_random_state
from .server import MOST_FORMS, StepMismatch, training_of
from .stand_in import is_remote_parameter, local_parameters
from .tape import Called, Fetched, Microbatch, Moved, Put, Sending
from .tensor.exchange import compare_exchanges
from .tensor.thread import microbatch as microbatch_of_thread
from .threads import MicrobatchThreads
from .visits import Turn, Visit, order_of_visits
from .wire import Poisoned, Wire

MOST_RESULTS = 1 << 12
"""The most tensors that a call may return: each call reserves a block of this many tensor numbers."""


class RemoteFailed(RuntimeError):
    """Another rank failed; `Coordinator.finish` gets the reason."""


class OutsideStep(RuntimeError):
    """A module that is spread over ranks was called outside a step."""

    def __init__(self, what: str = "The model was called") -> None:
        super().__init__(
            f"{what} outside a step; with more than one partition, do this in a function with the decorator @smp.step, "
            "which every rank calls."
        )


@dataclass(frozen=True)
class Schedule:
    """simple: the schedule of that name. open_microbatches: limit. in_turn: the order does not depend on timing.

    in_order: gradients are summed in the order of the microbatches.
    """

    simple: bool
    open_microbatches: int
    in_turn: bool
    in_order: bool

    def order(self, visits: Sequence[Visit], microbatches: int) -> Mapping[int, Sequence[Turn]]:
        """In which order the ranks run the visits."""
        return order_of_visits(tuple(visits), microbatches, self.open_microbatches, forward_first=self.simple)


class Coordinator:
    """Sends requests to the owners. servers: their ranks. named: the model's modules and parameters by name."""

    def __init__(self, wire: Wire, servers: Sequence[int], named: Mapping[str, Any], schedule: Schedule) -> None:
        self._wire, self._servers, self._named, self._schedule = wire, servers, dict(named), schedule
        # Sent by name, because the owner has them too. This rank's own parameters are sent as tensors with gradients.
        known = {name: each for name, each in named.items() if isinstance(each, nn.Module) or is_remote_parameter(each)}
        self._ids = {id(each): name for name, each in known.items()}
        self._numbers, self._transfers = itertools.count(1), itertools.count(1)
        self._forms: dict[Any, tuple[int, Form]] = {}
        self._draws: dict[str, bool] = {}
        self._thread = threading.local()
        self._baton = Baton(in_turn=schedule.in_turn)
        self._in_order = GradientsInOrder(local_parameters(named)) if schedule.in_order else None
        self._outbox = Outbox(wire.send, schedule.order)
        self._backward = BackwardPass(wire, self._outbox, lambda: next(self._transfers), self._wait, self._in_order)
        self.went_backward = False

    # ---- one step ----

    def open(self, hello: Hello, seed: int) -> None:
        """Begin a step on all ranks. StepMismatch on all ranks if they do not call the same step function."""
        others = [(server, self._wire.receive(server)) for server in self._servers]
        error = None
        for server, other in others:
            if other != hello:
                error = (
                    f"Rank {self._wire.rank} calls the step function {hello.function} as its step {hello.steps}, rank "
                    f"{server} calls {other.function} as its step {other.steps}; every rank must call the same step "
                    "functions in the same order, including those for evaluation."
                )
        for server in self._servers:
            self._wire.send(server, Opening(error, seed))
        if error:
            raise StepMismatch(error)

    def run(self, function: str, bodies: Sequence[Callable[[], Any]], seed: int) -> list[Any]:
        """The function's result for each microbatch, with all tensors fetched. Raises the first error."""
        self._outbox.begin(function, len(bodies))
        self._baton = Baton(in_turn=self._schedule.in_turn, turn=lambda: self._outbox.turn(self._wire.rank))
        self.went_backward = False
        if self._in_order:
            self._in_order.begin()

        def one(index: int, place: Key) -> Any:
            try:
                return self._run_microbatch(Microbatch(index, mixed(seed, index)), place, bodies[index])
            except BaseException:
                with suppress(Exception):  # this error came first
                    self._outbox.flush()  # other threads may wait for what is held
                raise

        threads = MicrobatchThreads(self._baton, one, len(bodies), self._schedule.open_microbatches)
        threads.run()
        if threads.errors and not isinstance(threads.errors[0], RemoteFailed):
            raise threads.errors[0]
        self._outbox.finish()
        return threads.outputs

    def finish(self) -> str | None:
        """End the step on all owners; the error if one of them failed."""
        self._outbox.flush()
        replies = []
        for server in self._servers:
            replies.append((server, self._wire.expect(server)))
            self._wire.send(server, Finish())
        statuses: list[tuple[int, ServerStatus]] = [(server, reply.wait()) for server, reply in replies]
        failed = [(server, status) for server, status in statuses if status.error]
        failed.sort(key=lambda each: not each[1].caused)
        return f"A module failed on rank {failed[0][0]}:\n{failed[0][1].error}" if failed else None

    def tell(self, outcome: StepOutcome, tensors: Sequence[torch.Tensor] = ()) -> None:
        """Tell all owners how the step ended."""
        for server in self._servers:
            transfer = next(self._transfers)
            self._wire.send(server, outcome._replace(transfer=transfer))
            if outcome.metas:
                self._wire.send_tensors(server, transfer, outcome.metas, tensors)
        self._wire.drain()

    # ---- one microbatch, in its thread ----

    @property
    def runs_here(self) -> bool:
        """Whether this thread runs a microbatch."""
        found: Microbatch | None = getattr(self._thread, "microbatch", None)
        return found is not None and not found.over

    @property
    def microbatch(self) -> Microbatch:
        """The microbatch of this thread. OutsideStep if there is none."""
        if not self.runs_here:
            raise OutsideStep
        found: Microbatch = self._thread.microbatch
        return found

    def _run_microbatch(self, microbatch: Microbatch, place: Key, body: Callable[[], Any]) -> Any:
        """Wait for the microbatch's turn and run the function. This thread has the baton afterwards, unless Halted."""
        self._thread.microbatch = microbatch
        self._baton.take(place)
        self._outbox.visit(microbatch.index, self._wire.rank, backward=False)
        begin_stream(microbatch.seed)
        with microbatch_of_thread(microbatch.index):
            result = tree_map(local, body())
            compare_exchanges()
        for record in microbatch.tape:
            if isinstance(record, Fetched) and record.holder.gradient is not None:
                raise RuntimeError(
                    "A gradient stayed on this rank, because loss.backward() was called in the step function; call "
                    "model.backward(loss), which continues on the other partitions."
                )
        for server in self._servers:
            self._outbox.post(microbatch.index, server, (server, EndMicrobatch(microbatch.index)))
        self._outbox.end(microbatch.index)
        if self._in_order:
            self._in_order.end(microbatch.index)
        microbatch.over = True
        microbatch.tape.clear()
        return result

    def _wait(self, wait: Callable[[], Any]) -> Any:
        """Wait for another rank while other microbatches run."""
        microbatch = self.microbatch
        backward = Priority.LAST if self._schedule.simple else Priority.BACKWARD
        priority = backward if microbatch.backward else Priority.CONTINUE
        microbatch.random = random_state()
        try:
            return self._baton.wait(wait, priority, microbatch.index)
        except Poisoned as error:
            raise RemoteFailed from error
        finally:
            set_random_state(microbatch.random)

    # ---- forward ----

    def call(self, names: tuple[str, ...], owner: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call modules of another rank one after the other; the result's tensors stay there."""
        microbatch = self.microbatch
        if microbatch.backward and torch.is_grad_enabled():
            raise RuntimeError(
                f"{names[0]} is on another partition and was called again during the backward pass, by a gradient "
                "checkpoint around it; checkpoint the module itself, with smp.set_activation_checkpointing."
            )
        try:
            arguments, tensors = pack((args, kwargs), self._ids)
        except TypeError as error:
            raise TypeError(f"An argument of {names[0]}, which is on rank {owner}: {error}") from error
        sending = Sending()
        for tensor in tensors:
            sending.inputs.append(self._bring(tensor, owner, sending))
        modes = current_modes(training_of([self._named[name] for name in names]))
        wants = tuple(handle.meta.requires_grad for handle in sending.inputs)
        key = (names, arguments, modes, tuple(handle.meta for handle in sending.inputs))
        known = self._forms.get(key)
        number = self._number()
        if known is None and self._schedule.in_turn:
            self._outbox.flush()  # the turns do not provide for waiting within a visit
        request = Call(
            results=number,
            microbatch=microbatch.index,
            names=names,
            arguments=arguments,
            inputs=tuple((handle.number, want) for handle, want in zip(sending.inputs, wants, strict=True)),
            puts=tuple((handle.number, handle.meta) for handle, _ in sending.puts),
            moves=tuple(Move(new.number, transfer) for _, new, transfer in sending.moves),
            transfer=next(self._transfers),
            modes=modes,
            seeds=self._seeds(microbatch, names),
            expected=known[0] if known else None,
            free=tuple(microbatch.unneeded.pop(owner, ())),
        )
        reply = self._issue(owner, request, sending)
        if known:
            form = known[1]
            if not self._baton.passes(microbatch.index):
                self._wait(lambda: None)
        else:
            form = self._learn(key, number, self._wait(lambda: reply.result().wait()))
        results = self._results(microbatch, request, owner, sending.inputs, form)
        for place, at in form.changed:
            change(tensors[place], results[at])
            results[at] = tensors[place]
        inputs = {input_name(place): tensor for place, tensor in enumerate(tensors)}
        result, _ = unpack(form.packed, results, ChainMap(inputs, self._named))
        return as_in_one_process(result, (args, kwargs))

    def _seeds(self, microbatch: Microbatch, names: tuple[str, ...]) -> tuple[int, ...]:
        """The seed of each module's stream; drawn from this stream exactly if the module would do so if it ran here."""
        seeds = []
        for name in names:
            if name not in self._draws:
                self._draws[name] = may_draw(self._named[name])
            drawn = self._draws[name] and self._named[name].training
            seeds.append(draw() if drawn else mixed(microbatch.seed, microbatch.calls))
            microbatch.calls += 1
        return tuple(seeds)

    def _issue(self, owner: int, request: Call, sending: Sending) -> "Future[Any]":
        """Post the requests to both ends of every transfer, and the call; returns its IncomingMessage if it has one."""
        outbox, microbatch = self._outbox, request.microbatch
        for old, _, transfer in sending.moves:
            outbox.transfer(old.owner, Push(microbatch, old.number, old.meta, owner, transfer))

        def send_puts() -> Any:
            if request.puts:
                metas = [meta for _, meta in request.puts]
                self._wire.send_tensors(owner, request.transfer, metas, [tensor for _, tensor in sending.puts])
            return self._wire.expect(owner) if request.expected is None else None

        outbox.visit(microbatch, owner, backward=self.microbatch.backward)
        needs = [transfer for _, _, transfer in sending.moves]
        return outbox.post(microbatch, owner, (owner, request), action=send_puts, needs=needs)

    def _learn(self, key: Any, number: int, form: Form | None) -> Form:
        if form is None:
            raise RemoteFailed
        if len(self._forms) < MOST_FORMS:
            self._forms[key] = (number, form)
        return form

    def _results(
        self, microbatch: Microbatch, request: Call, owner: int, inputs: list[Handle], form: Form
    ) -> list[Any]:
        grad = request.modes.grad
        release = None if grad else microbatch.release
        handles = [Handle(request.results + place, owner, meta, release) for place, meta in enumerate(form.metas)]
        if grad:
            microbatch.tape.append(Called(" → ".join(request.names), owner, request.results, inputs, handles))
        device, fetch = self._wire.device, self._fetch
        return [RemoteTensor.make(handle, microbatch, device, fetch) for handle in handles]

    def _number(self) -> int:
        return next(self._numbers) * MOST_RESULTS

    def _bring(self, tensor: torch.Tensor, owner: int, sending: Sending) -> Handle:
        """The handle of a tensor at an owner; sends the tensor with this call if it is not there yet."""
        microbatch = self.microbatch
        if isinstance(tensor, RemoteTensor) and not tensor.changed:
            if tensor.microbatch is not microbatch:
                raise OutsideStep("A tensor of another microbatch or step was used")
            return self._move(microbatch, tensor.handle, owner, sending)
        tensor = local(tensor)
        if is_remote_parameter(tensor):
            raise RuntimeError(
                "A parameter of another partition was passed to a module; put both on one partition, with "
                "smp.set_partition and auto_partition false."
            )
        wants = tensor.requires_grad and torch.is_grad_enabled()
        key = (id(tensor), version(tensor), owner, wants)
        earlier = microbatch.puts.get(key)
        if earlier is not None and earlier[0]() is tensor:
            return earlier[1]
        put = Put(Handle(self._number(), owner, meta_of(tensor)._replace(requires_grad=wants)))
        if wants:
            put.departure = Departure.apply(tensor, put.holder)  # type: ignore[no-untyped-call]
        microbatch.tape.append(put)
        microbatch.puts[key] = (weakref.ref(tensor), put.handle)
        sending.puts.append((put.handle, tensor))
        return put.handle

    def _move(self, microbatch: Microbatch, handle: Handle, owner: int, sending: Sending) -> Handle:
        if handle.owner == owner:
            return handle
        if earlier := microbatch.copies.get((handle.number, owner)):
            return earlier
        copy = Handle(self._number(), owner, handle.meta)
        microbatch.copies[handle.number, owner] = copy
        microbatch.tape.append(Moved(handle, copy))
        sending.moves.append((handle, copy, next(self._transfers)))
        return copy

    def _fetch(self, tensor: RemoteTensor) -> torch.Tensor:
        microbatch, handle = self.microbatch, tensor.handle
        if tensor.microbatch is not microbatch:
            raise OutsideStep("A tensor of another microbatch or step was used")
        transfer = next(self._transfers)
        push = Push(microbatch.index, handle.number, handle.meta, self._wire.rank, transfer)
        incoming = self._outbox.fetch(handle.owner, push, self._wire.expect_tensors)
        self._outbox.visit(microbatch.index, self._wire.rank, backward=microbatch.backward)
        (value,) = self._wait(partial(received, incoming))
        if not handle.meta.requires_grad or torch.is_inference_mode_enabled():
            return value  # type: ignore[no-any-return]
        fetched = Fetched(handle, GradientHolder())
        microbatch.tape.append(fetched)
        return arrive(value, fetched.holder)

    # ---- backward ----

    def backward(self, tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None] | None) -> None:
        """The backward pass from these tensors, here and at all owners."""
        microbatch = self.microbatch
        self.went_backward = True
        values = [local(tensor) for tensor in tensors]
        compare_exchanges()
        with self._baton.backward(microbatch.index):
            self._backward.run(microbatch, values, gradients)
