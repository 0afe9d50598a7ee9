"""The buffers that replicas share: those that checkpoints contain, such as running statistics.

Others, like a mask for the longest text so far, are each replica's own. After a step the first replica's values of all
buffers that any replica has changed go to the others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import nn

from . import model_state
from .gradients import broadcast_all
from .groups import get_dp_group, get_dp_process_group
from .seeds import mixed


class ReplicaBuffers:
    """The shared buffers of one rank. local: names and values of the rank's buffers. shared: whether to share any."""

    def __init__(
        self, module: nn.Module, local: Callable[[], Iterable[tuple[str, torch.Tensor]]], *, shared: bool
    ) -> None:
        self._module, self._local, self._shared = module, local, shared
        self._seen: set[str] = set()
        self._saved: set[str] = set()
        self._first: tuple[str, ...] = ()
        self._before: dict[str, tuple[int, int]] = {}
        self._changed: set[str] = set()
        """Buffers that changed since replicas last shared theirs."""

    def _buffers(self) -> dict[str, torch.Tensor]:
        if not self._shared:
            return {}
        named = {name: each for name, each in self._local() if not each.is_inference()}
        if named.keys() != self._seen:
            self._seen, self._saved = set(named), set(model_state.entries(self._module))
        return {name: each for name, each in named.items() if name in self._saved}

    def begin(self) -> None:
        """Remember the buffers that all replicas have: those of the model when it is partitioned."""
        self._first = tuple(self._buffers())

    def before_step(self) -> None:
        """Call this before a step."""
        self._before = versions(self._buffers())

    def after_step(self) -> list[int]:
        """What changed, as flags whose maxima over all replicas are the argument of `share`.

        Every replica has as many: one for each of the first buffers and one for all that were registered since. Then
        the names and shapes of all of them, as a number and its negative.
        """
        if not self._shared:
            return []
        buffers = self._buffers()
        self._changed |= {name for name, each in versions(buffers).items() if self._before.get(name) != each}
        shapes = mixed(*(f"{name} {tuple(each.shape)}" for name, each in buffers.items()))
        later = not self._changed <= set(self._first)
        return [*(name in self._changed for name in self._first), later, shapes, -shapes]

    def share(self, flags: Sequence[int]) -> None:
        """Broadcast what changed from the first replica. RuntimeError if replicas have different buffers."""
        self._changed = set()
        *changed, later, shapes, negative = flags
        if not (later or any(changed)):
            return
        if shapes != -negative:
            raise RuntimeError(
                "The replicas have different buffers after a forward pass, so they can't share them: register each one "
                "in __init__ or with persistent=False, or pass broadcast_buffers=False to smp.DistributedModel."
            )
        first = dict(zip(self._first, changed, strict=True))
        shared = [each for name, each in self._buffers().items() if first.get(name, later)]
        broadcast_all(shared, get_dp_group()[0], get_dp_process_group())


def versions(buffers: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, int]]:
    """Each buffer's address and version; a change in place or another tensor changes one of them."""
    return {name: (each.data_ptr(), each._version) for name, each in buffers.items()}
