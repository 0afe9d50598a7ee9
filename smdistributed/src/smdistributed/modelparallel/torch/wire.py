"""The traffic between two ranks: control messages over gloo, payloads of tensors over gloo or a GPU's NCCL.

A control message is one frame; the body of a long one follows in a second frame. Messages arrive in the
order in which they were sent. A payload is one buffer: a header with the transfer's number, then the tensors. Neither
NCCL nor gloo with a single tag distinguishes transfers, so both ends must issue them in the same order; the number
detects mistakes.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .codec import decode, encode
from .messages import Meta
from .sends import Sends
from .state import state

FRAME = 1 << 16
"""Bytes of a frame; a longer control message is sent in a second one."""
_PREFIX, _ALIGNMENT, _WORD = 16, 16, 8
_CONTROL, _TENSORS, _OVERFLOW = 11, 12, 1000
"""Tags of gloo, which separate the kinds of traffic within one group."""
_FINE, _POISON = 0, 1


class TransferError(RuntimeError):
    """A payload is not the expected one: the two ends issued their transfers in different orders."""


class Poisoned(RuntimeError):
    """The sender failed, so its payload has no data."""


def layout(metas: Sequence[Meta]) -> tuple[list[int], int]:
    """Where each tensor begins in a payload, and the payload's size, in bytes; pure.

    The header holds the transfer's number, a status and, per tensor, whether it is present.
    """
    end = _aligned(_WORD * (2 + len(metas)))
    starts = []
    for meta in metas:
        starts.append(end)
        end += _aligned(meta.bytes)
    return starts, end


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def fill(
    transfer: int, metas: Sequence[Meta], tensors: Sequence[torch.Tensor | None], device: torch.device
) -> torch.Tensor:
    """Create a payload. A tensor that is None takes up its space and arrives as None."""
    starts, size = layout(metas)
    buffer = torch.empty(size, dtype=torch.uint8, device=device)
    header = [transfer, _FINE, *(tensor is not None for tensor in tensors)]
    buffer[: _WORD * len(header)].view(torch.int64).copy_(torch.tensor(header))
    for start, meta, tensor in zip(starts, metas, tensors, strict=True):
        if tensor is not None and meta.bytes:
            buffer[start : start + meta.bytes].view(meta.dtype).view(meta.shape).copy_(tensor.detach())
    return buffer


def poison(transfer: int, metas: Sequence[Meta], device: torch.device) -> torch.Tensor:
    """Create a payload of the expected size that is marked as without data."""
    buffer = torch.empty(layout(metas)[1], dtype=torch.uint8, device=device)
    buffer[: 2 * _WORD].view(torch.int64).copy_(torch.tensor([transfer, _POISON]))
    return buffer


def tensors_of(buffer: torch.Tensor, transfer: int, metas: Sequence[Meta]) -> list[torch.Tensor | None]:
    """The tensors of a payload, which share its memory. TransferError if it belongs to another transfer, Poisoned if it
    has no data.
    """
    number, status, *present = buffer[: _WORD * (2 + len(metas))].view(torch.int64).tolist()
    if number != transfer:
        raise TransferError(
            f"Transfer {number} arrived instead of {transfer}; this is a bug in the model parallel library."
        )
    if status != _FINE:
        raise Poisoned
    storage = buffer.untyped_storage()
    tensors: list[torch.Tensor | None] = []
    for start, meta, is_present in zip(layout(metas)[0], metas, present, strict=True):
        # Views of the buffer would share one version counter, so changing one in place would invalidate the others.
        tensor = torch.empty(0, dtype=meta.dtype, device=buffer.device) if is_present else None
        if tensor is not None and meta.bytes:
            tensor.set_(storage, start // meta.dtype.itemsize, meta.shape)  # type: ignore[call-overload]
        elif tensor is not None:
            tensor = tensor.view(meta.shape)
        tensors.append(tensor)
    return tensors


_abandoned: list[Any] = []
"""Receives for which a failed step does not wait. Without them gloo would receive nothing more from that rank."""


class Incoming:
    """A payload that is being received, for a device."""

    def __init__(
        self, work: Any, buffer: torch.Tensor, transfer: int, metas: Sequence[Meta], route: tuple[int, torch.device]
    ) -> None:
        self._work, self._buffer, self._transfer, self._metas = work, buffer, transfer, metas
        self._source, self._device = route
        self._waited = False

    def __del__(self) -> None:
        if not self._waited:
            _abandoned.append((self._work, self._buffer))

    def wait(self) -> list[torch.Tensor | None]:
        """Wait for the payload and return its tensors on the device."""
        with state.watch.explain_errors([self._source]):
            self._work.wait()
        self._waited = True
        tensors = tensors_of(self._buffer, self._transfer, self._metas)
        return [tensor if tensor is None else tensor.to(self._device) for tensor in tensors]


class IncomingMessage:
    """A control message that is being received."""

    def __init__(
        self, work: Any, buffer: torch.Tensor, overflow: Callable[[int, int], torch.Tensor], source: int
    ) -> None:
        self._work, self._buffer, self._overflow, self._source = work, buffer, overflow, source

    def wait(self) -> Any:
        """Wait for the message and return it."""
        with state.watch.explain_errors([self._source]):
            self._work.wait()
            size, tag = self._buffer[:_PREFIX].view(torch.int64).tolist()
            body = self._overflow(size, tag) if tag else self._buffer[_PREFIX : _PREFIX + size]
        return decode(body.numpy().tobytes())


class Wire:
    """This rank's connections to the other ranks of its pipeline.

    control: a process group with gloo. tensors: the group for payloads in each direction, `direction_groups`; None:
    `control`, through the host's memory. Ranks are numbered as in WORLD.
    """

    def __init__(self, control: Any, tensors: Mapping[tuple[int, int], Any] | None, device: torch.device) -> None:
        self.rank, self.device = dist.get_rank(), device
        self.sent_bytes = 0
        self._control, self._tensors = control, tensors
        self._payload_device = torch.device("cpu") if tensors is None else device
        self._sends = Sends()
        self._overflows = itertools.count(_OVERFLOW)

    def send(self, destination: int, message: Any) -> None:
        """Send a control message; returns at once."""
        body = encode(message)
        tag = next(self._overflows) if len(body) > FRAME - _PREFIX else 0
        prefix = len(body).to_bytes(_WORD, "little") + tag.to_bytes(_WORD, "little")
        self._post(bytearray(prefix if tag else prefix + body), destination, _CONTROL)
        if tag:
            self._post(bytearray(body), destination, tag)

    def expect(self, source: int) -> IncomingMessage:
        """Start to receive the next control message of a rank. Messages arrive in the order of these calls."""
        buffer = torch.empty(FRAME, dtype=torch.uint8)

        def overflow(size: int, tag: int) -> torch.Tensor:
            body = torch.empty(size, dtype=torch.uint8)
            dist.recv(body, source, group=self._control, tag=tag)
            return body

        with state.watch.explain_errors([source]):
            work = dist.irecv(buffer, source, group=self._control, tag=_CONTROL)
        return IncomingMessage(work, buffer, overflow, source)

    def receive(self, source: int) -> Any:
        """Wait for the next control message of a rank."""
        return self.expect(source).wait()

    def send_tensors(
        self, destination: int, transfer: int, metas: Sequence[Meta], tensors: Sequence[torch.Tensor | None] | None
    ) -> None:
        """Send a copy of the tensors as a payload; returns at once. None: send a payload without data."""
        if tensors is None:
            buffer = poison(transfer, metas, self._payload_device)
        else:
            buffer = fill(transfer, metas, tensors, self._payload_device)
        if self._tensors is None:
            self._send(buffer, destination, _TENSORS)
        else:  # torch keeps the buffer until it was sent; waiting would stop the GPU's stream until then
            with state.watch.explain_errors([destination]):
                dist.isend(buffer, destination, group=self._tensors[self.rank, destination])
        self.sent_bytes += sum(meta.bytes for meta in metas)

    def expect_tensors(self, source: int, transfer: int, metas: Sequence[Meta]) -> Incoming:
        """Start to receive the next payload of a rank. Payloads arrive in the order of these calls."""
        buffer = torch.empty(layout(metas)[1], dtype=torch.uint8, device=self._payload_device)
        with state.watch.explain_errors([source]):
            if self._tensors is None:
                work = dist.irecv(buffer, source, group=self._control, tag=_TENSORS)
            else:
                work = dist.irecv(buffer, source, group=self._tensors[source, self.rank])
        return Incoming(work, buffer, transfer, metas, (source, self.device))

    @property
    def in_one_order(self) -> bool:
        """Whether every rank must start its sends and receives of payloads in the order of the requests.

        Over NCCL they run in the order in which they were started, so different orders on two ranks would block both.
        """
        return self._tensors is not None

    def drain(self) -> None:
        """Wait until everything was sent."""
        self._sends.drain()

    def _post(self, content: bytearray, destination: int, tag: int) -> None:
        self._send(torch.frombuffer(content, dtype=torch.uint8), destination, tag)

    def _send(self, buffer: torch.Tensor, destination: int, tag: int) -> None:
        with state.watch.explain_errors([destination]):
            work = dist.isend(buffer, destination, group=self._control, tag=tag)
        self._sends.add(work, buffer, destination)


def direction_groups(pipelines: Sequence[Sequence[int]], rank: int, device: torch.device) -> dict[tuple[int, int], Any]:
    """A rank's groups for GPU tensors, by source and destination. Every rank calls this.

    Each direction has its own group of two, so that tensors of one direction do not wait for those of the other. The
    first use of a group over NCCL blocks until the other rank uses it as well, so it happens here, on all ranks in one
    order.
    """
    groups = {}
    for ranks in pipelines:
        for pair in itertools.permutations(ranks, 2):
            group = dist.new_group(list(pair))
            if rank in pair:
                groups[pair] = group
    for (source, destination), group in groups.items():
        first = torch.zeros(1, device=device)
        if rank == source:
            dist.send(first, destination, group=group)
        else:
            dist.recv(first, source, group=group)
    return groups
