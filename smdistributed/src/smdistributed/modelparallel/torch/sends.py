"""Sends in flight: keeps each buffer until it was sent, and no longer.

gloo tells only a caller of `wait` that it has sent a buffer. So one thread per destination waits for the sends, in
their order, and releases their buffers.
"""

import queue
import threading
import weakref
from typing import Any

import torch

from .state import state

_Item = tuple[Any, torch.Tensor]


class Sends:
    """The sends of one rank, by destination."""

    def __init__(self) -> None:
        self._outboxes: dict[int, tuple[queue.Queue[_Item | None], list[RuntimeError]]] = {}

    def add(self, work: Any, buffer: torch.Tensor, destination: int) -> None:
        """Keep `buffer` until `work` has sent it; returns at once."""
        if destination not in self._outboxes:
            outbox: queue.Queue[_Item | None] = queue.Queue()
            errors: list[RuntimeError] = []
            self._outboxes[destination] = outbox, errors
            threading.Thread(target=_release, args=(outbox, errors), name="smp-sends", daemon=True).start()
            weakref.finalize(self, outbox.put, None)  # ends the thread
        self._outboxes[destination][0].put((work, buffer))

    def drain(self) -> None:
        """Wait until everything was sent. RankLost if a destination is gone."""
        for destination, (outbox, errors) in self._outboxes.items():
            with state.watch.explain_errors([destination]):
                outbox.join()
                if errors:
                    raise errors[0]


def _release(outbox: "queue.Queue[_Item | None]", errors: list[RuntimeError]) -> None:
    while (item := outbox.get()) is not None:
        try:
            item[0].wait()
        except RuntimeError as error:
            errors.append(error)
        item = None  # before the next `get`, which may take long
        outbox.task_done()
