"""The engine's stream of a push, event by event: how far each layer is, and what it ended with.

Pure. The engine counts bytes of its own here; what was sent is known from the manifest afterwards (`sent_and_there`).
Layers are named by the first 12 digits of a digest: in Docker's own store of the plain tar (the diff id), in
containerd's store of the compressed blob, and there the config and the manifest are named too.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

_ID_LENGTH = 12
_ENDS = {"Pushed": "sent", "Layer already exists": "there"}


@dataclass(slots=True)
class LayerState:
    """One layer on its way, in the engine's bytes; `end` is empty, `sent`, `there` or `mounted`.

    waits: it broke off, and the engine will send it again from its beginning.
    """

    layer: str
    current: int = 0
    total: int = 0
    end: str = ""
    waits: bool = False


@dataclass(slots=True)
class PushStream:
    """What a push said so far; `error` is the engine's own sentence, which ends the stream.

    retried: whether the engine sent a layer again by itself, which it does five times with growing waits of up to 20 s.
    """

    layers: dict[str, LayerState] = field(default_factory=dict)
    error: str = ""
    retried: bool = False

    def feed(self, event: Mapping[str, Any]) -> LayerState | None:
        """Takes one event; gives the layer whose state it changed."""
        if "error" in event:
            self.error = str(event["error"])
            return None
        status, layer = str(event.get("status", "")), str(event.get("id", ""))
        if not layer:
            return None
        state = self.layers.setdefault(layer, LayerState(layer))
        if status == "Pushing":
            detail = event.get("progressDetail") or {}
            # The engine's count runs past its own total, which leaves the tar's padding out.
            state.current, state.total = int(detail.get("current", 0)), int(detail.get("total", 0) or state.total)
            state.waits = False
            return state
        if status in _ENDS or status.startswith("Mounted from"):
            # What was sent stays sent: an image may hold a layer twice, and where a push breaks off, the engine does
            # not say of a layer that it arrived, and finds it there in the next try.
            state.end = state.end or ("sent" if state.current else _ENDS.get(status, "mounted"))
            return state
        if status.startswith("Retrying in"):  # each second of the wait
            self.retried = state.waits = True
            return state
        return None

    @property
    def sent(self) -> set[str]:
        """The layers that the registry did not have."""
        return {state.layer for state in self.layers.values() if state.end == "sent"}


def short_id(digest: str) -> str:
    """How the engine names a layer in a push."""
    return digest.partition(":")[2][:_ID_LENGTH]


def sent_and_there(diff_ids: Sequence[str], layers: Sequence[tuple[str, int]], sent: Set[str]) -> tuple[int, int]:
    """Compressed bytes that were sent, and bytes that the registry had already.

    diff_ids: of the image, lowest first; layers: (digest, compressed size) of its manifest in the same order; sent: ids
    of `PushStream.sent`. A layer that occurs twice counts once.
    """
    sizes = {digest: (size, diff_id) for (digest, size), diff_id in zip(layers, diff_ids, strict=True)}
    gone = sum(size for digest, (size, diff_id) in sizes.items() if sent & {short_id(digest), short_id(diff_id)})
    return gone, sum(size for size, _ in sizes.values()) - gone


def with_few_left(
    layers: int, few: int, show: Callable[[LayerState], None], then: Callable[[], None]
) -> Callable[[LayerState], None]:
    """`show`, and `then` too at each state with fewer than `few` of so many layers still on their way."""
    ended: set[str] = set()

    def watch(state: LayerState) -> None:
        show(state)
        if state.end:
            ended.add(state.layer)
        if layers - len(ended) < few:
            then()

    return watch
