"""The events of an engine's push: each layer's progress, and how it ended. Pure.

The events count the engine's own bytes; the compressed bytes come from the manifest afterwards (`sent_and_there`). The
engine names a layer by the first 12 digits of a digest: with Docker's own store that of the uncompressed tar (the
diff ID), with containerd's store that of the compressed blob. There the config and the manifest have events, too.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

_ID_LENGTH = 12
_ENDS = {"Pushed": "sent", "Layer already exists": "there"}


@dataclass(slots=True)
class LayerState:
    """A layer's progress, in the engine's bytes; `end` is empty, `sent`, `there` or `mounted`.

    waits: the transfer failed, and the engine will send the layer again from its beginning.
    """

    layer: str
    current: int = 0
    total: int = 0
    end: str = ""
    waits: bool = False


ShowLayer = Callable[[str, LayerState], None]
"""Called with a repository, `HOST/NAME`, and a layer whose state has changed."""


@dataclass(slots=True)
class PushStream:
    """The events of a push so far; `error` is the engine's error, which ends the stream.

    retried: whether the engine sent a layer again by itself. It does so up to five times, with waits of up to 20 s.
    """

    layers: dict[str, LayerState] = field(default_factory=dict)
    error: str = ""
    retried: bool = False

    def feed(self, event: Mapping[str, Any]) -> LayerState | None:
        """Takes an event; returns the layer whose state it changed, if any."""
        if "error" in event:
            self.error = str(event["error"])
            return None
        status, layer = str(event.get("status", "")), str(event.get("id", ""))
        if not layer:
            return None
        state = self.layers.setdefault(layer, LayerState(layer))
        if status == "Pushing":
            detail = event.get("progressDetail") or {}
            # `current` may exceed `total`, which does not include the tar's padding.
            state.current, state.total = int(detail.get("current", 0)), int(detail.get("total", 0) or state.total)
            state.waits = False
            return state
        if status in _ENDS or status.startswith("Mounted from"):
            # `sent` stays: an image may contain a layer twice, and after an interrupted push the next try finds a layer
            # that this push has sent.
            state.end = state.end or ("sent" if state.current else _ENDS.get(status, "mounted"))
            return state
        if status.startswith("Retrying in"):  # each second of the wait
            self.retried = state.waits = True
            return state
        return None

    @property
    def sent(self) -> set[str]:
        """The layers that this push sent."""
        return {state.layer for state in self.layers.values() if state.end == "sent"}


def short_id(digest: str) -> str:
    """The engine's name of a layer in a push."""
    return digest.partition(":")[2][:_ID_LENGTH]


def sent_and_there(diff_ids: Sequence[str], layers: Sequence[tuple[str, int]], sent: Set[str]) -> tuple[int, int]:
    """The compressed bytes that were sent, and those that the registry had already.

    diff_ids: the image's, lowest first; layers: the manifest's (digest, compressed size), in the same order; sent:
    `PushStream.sent`. A layer that occurs twice counts once.
    """
    sizes = {digest: (size, diff_id) for (digest, size), diff_id in zip(layers, diff_ids, strict=True)}
    sent_bytes = sum(size for digest, (size, diff_id) in sizes.items() if sent & {short_id(digest), short_id(diff_id)})
    return sent_bytes, sum(size for size, _ in sizes.values()) - sent_bytes
