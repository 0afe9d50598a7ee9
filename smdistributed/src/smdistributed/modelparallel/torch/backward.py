"""The backward pass over all ranks: replays a microbatch's tape in reverse.

Each record of the tape connects the graphs of two ranks. This rank's graph continues with torch's own backward, an
owner's with a request to it. Gradients take the reverse way of the tensors, also directly from owner to owner.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from .gradients import GradientsInOrder
from .messages import AddGradient, Backward, SendGradient, meta_of
from .outbox import Outbox
from .remote import Handle
from .tape import Called, Fetched, Microbatch, Moved, Put, Record
from .wire import Incoming, Wire


def received(incoming: "Future[Incoming]") -> list[torch.Tensor | None]:
    """Wait until a payload was asked for and has arrived."""
    return incoming.result().wait()


class BackwardPass:
    """transfer: returns the next transfer's number. wait: waits for another rank while other microbatches run.

    in_order: sums this rank's gradients in a fixed order; None: in any order.
    """

    def __init__(
        self,
        wire: Wire,
        outbox: Outbox,
        transfer: Callable[[], int],
        wait: Callable[[Callable[[], Any]], Any],
        in_order: GradientsInOrder | None,
    ) -> None:
        self._wire, self._outbox, self._transfer, self._wait, self._in_order = wire, outbox, transfer, wait, in_order

    def run(
        self,
        microbatch: Microbatch,
        tensors: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None] | None,
    ) -> None:
        """Run the backward pass from these local tensors through all ranks."""
        microbatch.backward = True
        microbatch.passes += 1
        try:
            with self._part(microbatch):
                torch.autograd.backward(tensors, gradients, retain_graph=bool(microbatch.tape))
            self._unwind(microbatch)
        finally:
            microbatch.backward = False

    def _part(self, microbatch: Microbatch) -> AbstractContextManager[None]:
        return self._in_order.part(microbatch.index, microbatch.passes) if self._in_order else nullcontext()

    def _unwind(self, microbatch: Microbatch) -> None:
        """Replay the tape in reverse. Its records stay, because a second loss may reach them and find spent graphs."""
        waiting: list[tuple[Put, Future[Incoming]]] = []
        replayed: list[Record] = []
        while microbatch.tape:
            record = microbatch.tape.pop()
            replayed.append(record)
            if isinstance(record, Fetched):
                self._continue_here(microbatch, waiting)
                self._give_gradient(microbatch, record)
            elif isinstance(record, Called):
                self._call_backward(microbatch, record)
            elif isinstance(record, Moved):
                self._return_gradient(microbatch, record)
            elif record.handle.reached and record.departure is not None:
                waiting.append((record, self._ask_gradient(microbatch, record.handle)))
        self._continue_here(microbatch, waiting)
        microbatch.tape.extend(reversed(replayed))

    def _give_gradient(self, microbatch: Microbatch, record: Fetched) -> None:
        gradient = record.holder.take()
        if gradient is None:
            return
        handle, transfer = record.handle, self._transfer()
        meta = meta_of(gradient)
        request = AddGradient(microbatch.index, handle.number, transfer, meta)
        self._outbox.visit(microbatch.index, handle.owner, backward=True)
        self._outbox.post(
            microbatch.index,
            handle.owner,
            (handle.owner, request),
            action=lambda: self._wire.send_tensors(handle.owner, transfer, [meta], [gradient]),
        )
        handle.reached = True

    def _call_backward(self, microbatch: Microbatch, record: Called) -> None:
        if not any(handle.reached for handle in record.results):
            return
        if record.spent:
            raise RuntimeError(
                f"A second backward pass goes through {record.name}, whose graph the first one used up; add the losses "
                "and call model.backward once."
            )
        record.spent = True
        request = Backward(microbatch.index, record.number, microbatch.passes)
        self._outbox.visit(microbatch.index, record.owner, backward=True)
        self._outbox.post(microbatch.index, record.owner, (record.owner, request))
        for handle in record.results:
            handle.reached = False
        for handle in record.inputs:
            handle.reached = handle.reached or handle.meta.requires_grad

    def _return_gradient(self, microbatch: Microbatch, record: Moved) -> None:
        if not record.target.reached:
            return
        source, target, transfer = record.source, record.target, self._transfer()
        request = SendGradient(microbatch.index, target.number, target.meta, source.owner, transfer)
        self._outbox.transfer(target.owner, request)
        self._outbox.visit(microbatch.index, source.owner, backward=True)
        answer = AddGradient(microbatch.index, source.number, transfer)
        self._outbox.post(microbatch.index, source.owner, (source.owner, answer), needs=[transfer])
        target.reached, source.reached = False, True

    def _ask_gradient(self, microbatch: Microbatch, handle: Handle) -> "Future[Incoming]":
        transfer = self._transfer()
        request = SendGradient(microbatch.index, handle.number, handle.meta, self._wire.rank, transfer)
        handle.reached = False
        return self._outbox.fetch(handle.owner, request, self._wire.expect_tensors)

    def _continue_here(self, microbatch: Microbatch, waiting: list[tuple[Put, "Future[Incoming]"]]) -> None:
        """Continue the backward pass of this rank's graph from the tensors that were sent to other ranks."""
        departures = []
        if waiting:
            self._outbox.visit(microbatch.index, self._wire.rank, backward=True)
        for record, incoming in waiting:
            (gradient,) = self._wait(partial(received, incoming))
            if gradient is not None and record.departure is not None:
                record.holder.add(gradient)
                departures.append(record.departure)
        waiting.clear()
        if departures:
            zeros = [torch.zeros_like(each) for each in departures]
            with self._part(microbatch):
                torch.autograd.backward(departures, zeros, retain_graph=True)
