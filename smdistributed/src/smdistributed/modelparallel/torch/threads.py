"""The threads of a step: one per microbatch; a limited number is open at a time."""

import threading
from collections.abc import Callable
from typing import Any

import torch

from .baton import Baton, Halted, Key, Priority
from .messages import current_modes, in_modes
from .seeds import random_state, set_random_state

RunMicrobatch = Callable[[int, Key], Any]
"""Runs one microbatch in its thread; the arguments are its index and its place in the queue for the baton."""


class MicrobatchThreads:
    """Runs a step's microbatches and collects `outputs` and `errors`; each one that ends opens the next."""

    def __init__(self, baton: Baton, run: RunMicrobatch, count: int, at_a_time: int) -> None:
        self.outputs: list[Any] = [None] * count
        self.errors: list[BaseException] = []
        self._baton, self._run, self._at_a_time = baton, run, at_a_time
        self._modes = current_modes()
        self._left = iter(range(count))
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Run all microbatches and wait for their threads."""
        before = random_state()
        for thread in filter(None, [self._open() for _ in range(self._at_a_time)]):
            thread.start()
        for thread in self._threads:  # the list grows while threads open others
            thread.join()
        set_random_state(before)

    def _open(self) -> threading.Thread | None:
        """The next microbatch's thread, already in the queue; None if all microbatches were opened."""
        index = next(self._left, None)
        if index is None:
            return None
        place = self._baton.line_up(Priority.BEGIN, index)
        device = torch.cuda.current_device() if torch.cuda.is_available() else None
        thread = threading.Thread(target=self._body, args=(index, place, device), daemon=True)
        self._threads.append(thread)
        return thread

    def _body(self, index: int, place: Key, device: int | None) -> None:
        if device is not None:
            torch.cuda.set_device(device)
        try:
            with in_modes(self._modes):
                self.outputs[index] = self._run(index, place)
            self._baton.close(index)
            if following := self._open():
                following.start()
            self._baton.give_up()
        except Halted:
            pass
        except BaseException as error:  # the thread that runs the step raises it
            self.errors.append(error)
            self._baton.stop()
