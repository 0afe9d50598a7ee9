"""What the coordinator asks of an owner of modules, and what it is told.

Tensors have numbers, which the coordinator gives; those of one microbatch are released together.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from .wire import Meta


class Modes(NamedTuple):
    """The state of a thread that a call's result depends on. `autocast`: device type, on or off, type.

    `training`: a byte for each of the called modules and those below them.
    """

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, torch.dtype], ...]
    training: bytes = b""


class Move(NamedTuple):
    """A tensor that comes from another owner, under a number of its own."""

    number: int
    meta: Meta
    source: int
    transfer: int


class Call(NamedTuple):
    """Call modules, one after the other; the first gets the arguments. Its results get the numbers from `results` on.

    `inputs`: for each tensor in the arguments its number, and whether it wants a gradient. `puts`: tensors that come
    with the call, in payload `transfer`. `seeds`: of each module's random numbers. `expected`: an earlier call whose
    result this one's will resemble; None: say how the result looks. `free`: tensors that nobody needs any more, by
    microbatch and number.
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
    free: tuple[tuple[int, int], ...]


class Form(NamedTuple):
    """How a call's result looks: packed without its tensors. None where the call failed.

    `changed`: inputs that were changed in place: place of the input, and place among the result's tensors.
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


class Backward(NamedTuple):
    """Run the backward of a call, in one of the microbatch's backward passes."""

    microbatch: int
    call: int
    backward_pass: int


class SendGradient(NamedTuple):
    """Send a tensor's gradient, as far as it is known, to another rank, and forget it."""

    microbatch: int
    number: int
    meta: Meta
    destination: int
    transfer: int


class AddGradient(NamedTuple):
    """Receive a gradient and add it to a tensor's."""

    microbatch: int
    number: int
    meta: Meta
    source: int
    transfer: int


class EndMicrobatch(NamedTuple):
    """A microbatch is over."""

    microbatch: int


class Finish(NamedTuple):
    """The step is over: say whether anything failed."""


class Hello(NamedTuple):
    """Which step function a rank is about to run, and how many steps it ran before."""

    function: str
    steps: int


class Opening(NamedTuple):
    """The step begins, unless `error` says why not."""

    error: str | None
    seed: int = 0


class ServerStatus(NamedTuple):
    """A traceback, or nothing: all went well. `caused` is false where only what another rank sent was missing."""

    error: str | None = None
    caused: bool = True


class StepOutcome(NamedTuple):
    """How a step ended: an error, or the outputs of its microbatches, packed, with tensors in payload `transfer`."""

    error: str | None
    packed: bytes = b""
    metas: tuple[Meta, ...] = ()
    transfer: int = 0
    went_backward: bool = False


Request = Call | Push | Backward | SendGradient | AddGradient | EndMicrobatch | Finish


def current_modes(training: bytes = b"") -> Modes:
    """Those of this thread."""
    kinds = ("cpu", "cuda")
    autocast = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
    return Modes(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, training)


@contextmanager
def in_modes(modes: Modes) -> Iterator[None]:
    """This thread in a state that was another's."""
    with ExitStack() as stack:
        if modes.inference != torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(modes.inference))
        stack.enter_context(torch.set_grad_enabled(modes.grad))
        for kind, enabled, dtype in modes.autocast:
            if enabled != torch.is_autocast_enabled(kind) or (enabled and dtype != torch.get_autocast_dtype(kind)):
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled))
        yield
