"""The messages between the coordinator and the owners of modules.

The coordinator numbers the tensors; an owner releases those of a microbatch together.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from .tensor.thread import in_region, region


class Meta(NamedTuple):
    """Shape and type of a tensor: enough to allocate memory for it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool = False

    @property
    def bytes(self) -> int:
        """Size of the tensor's data in bytes."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()


def meta_of(tensor: torch.Tensor) -> Meta:
    """The Meta of a tensor."""
    return Meta(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)


class Modes(NamedTuple):
    """The thread state on which a call's result depends. autocast: per device type, whether it is on, and its dtype.

    training: one byte per called module and submodule. in_region: the call comes from a region of tensor parallelism.
    """

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    training: bytes = b""
    in_region: bool = False


class Move(NamedTuple):
    """A tensor that comes from another owner and gets a new number here. An Expect announced the transfer."""

    number: int
    transfer: int


class Call(NamedTuple):
    """Call modules one after the other; the first gets the arguments. The results are numbered from `results` on.

    inputs: number of each tensor in the arguments, and whether it needs a gradient. puts: tensors that come with the
    call, in payload `transfer`. seeds: per module, for its random numbers. expected: an earlier call whose result has
    the same form; None: reply with the form. free: tensors of the microbatch to release.
    """

    results: int
    microbatch: int
    names: tuple[str, ...]
    arguments: bytes
    inputs: tuple[tuple[int, bool], ...]
    puts: tuple[tuple[int, Meta], ...]
    moves: tuple[Move, ...]
    transfer: int
    modes: Modes
    seeds: tuple[int, ...]
    expected: int | None
    free: tuple[int, ...]


class Form(NamedTuple):
    """The form of a call's result: packed without its tensors. If the call failed, None is sent instead.

    changed: inputs changed in place: index of the input, and index among the result's tensors.
    """

    packed: bytes
    metas: tuple[Meta, ...]
    changed: tuple[tuple[int, int], ...] = ()


class Push(NamedTuple):
    """Send a tensor to another rank."""

    microbatch: int
    number: int
    meta: Meta
    destination: int
    transfer: int


class Expect(NamedTuple):
    """Receive a tensor from another owner, for a later request."""

    meta: Meta
    source: int
    transfer: int


class Backward(NamedTuple):
    """Run the backward of a call, in one of the microbatch's backward passes."""

    microbatch: int
    call: int
    backward_pass: int


class SendGradient(NamedTuple):
    """Send a tensor's gradient, if it has one, to another rank and drop it."""

    microbatch: int
    number: int
    meta: Meta
    destination: int
    transfer: int


class AddGradient(NamedTuple):
    """Add a received gradient to a tensor's. meta: of one that the coordinator sends; None: an Expect announced it."""

    microbatch: int
    number: int
    transfer: int
    meta: Meta | None = None


class EndMicrobatch(NamedTuple):
    """A microbatch is over."""

    microbatch: int


class Finish(NamedTuple):
    """The step is over; the owner replies with a ServerStatus."""


class Hello(NamedTuple):
    """Which step function a rank is about to run, and how many steps it ran before."""

    function: str
    steps: int


class Opening(NamedTuple):
    """The step begins, unless there is an `error`."""

    error: str | None
    seed: int = 0


class ServerStatus(NamedTuple):
    """A traceback, or None if nothing failed. caused: false if it failed only because another rank sent no data."""

    error: str | None = None
    caused: bool = True


class StepOutcome(NamedTuple):
    """How a step ended: an error, or the outputs of its microbatches, packed, with tensors in payload `transfer`."""

    error: str | None
    packed: bytes = b""
    metas: tuple[Meta, ...] = ()
    transfer: int = 0
    went_backward: bool = False


Request = Call | Push | Expect | Backward | SendGradient | AddGradient | EndMicrobatch | Finish


def current_modes(training: bytes = b"") -> Modes:
    """The modes of this thread."""
    kinds = ("cpu", "cuda")
    autocast = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
    return Modes(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, training, in_region())


@contextmanager
def in_modes(modes: Modes) -> Iterator[None]:
    """Run this thread in the modes of another one."""
    with ExitStack() as stack:
        if modes.inference != torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(modes.inference))
        stack.enter_context(torch.set_grad_enabled(modes.grad))
        stack.enter_context(region(inside=modes.in_region))
        for kind, enabled, dtype in modes.autocast:
            if enabled != torch.is_autocast_enabled(kind) or (enabled and dtype != torch.get_autocast_dtype(kind)):
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        yield
