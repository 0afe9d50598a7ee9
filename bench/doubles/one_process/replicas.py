"""The replicas of a data-parallel script as threads of one process, of which one runs at a time, in order of rank.

A replica runs until it exchanges a value with the others; the next one runs then, and once all have brought theirs, the
first goes on. So every run is the same, to the bit. Random numbers are each replica's own, as those of processes are.
"""

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_thread = threading.local()


def _random_state() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set_random_state(state: tuple[Any, ...]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])
    torch.set_rng_state(state[2])


class Replicas:
    """As many threads as a job has replicas; `run` once."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._turn = 0
        self._changed = threading.Condition()
        self._rounds: list[dict[int, Any]] = []
        self._done = [0] * count
        self._ended: set[int] = set()
        self._failure: BaseException | None = None

    def run(self, body: Callable[[], None]) -> None:
        """Calls `body` in every replica; raises what the first one to fail raised."""
        state = _random_state()
        threads = [threading.Thread(target=self._one, args=(number, body, state)) for number in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def exchange(self, value: Any) -> list[Any]:
        """What every replica brought to this exchange, in order of rank; RuntimeError where one ended before it."""
        me = rank()
        number = self._done[me]
        self._done[me] += 1
        if len(self._rounds) == number:
            self._rounds.append({})
        self._rounds[number][me] = value
        state = _random_state()
        self._pass_on(me)
        self._wait(me)
        _set_random_state(state)
        if len(self._rounds[number]) != self.count:
            raise RuntimeError(f"replica {me} exchanges with the others, of which one has ended")
        return [self._rounds[number][other] for other in range(self.count)]

    def _one(self, number: int, body: Callable[[], None], state: tuple[Any, ...]) -> None:
        _thread.rank = number
        try:
            self._wait(number)
            _set_random_state(state)
            body()
        except BaseException as error:
            self._failure = self._failure or error
        finally:
            self._ended.add(number)
            self._pass_on(number)

    def _wait(self, me: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == me or self._failure is not None)
        if self._failure is not None:
            raise RuntimeError("another replica failed")

    def _pass_on(self, me: int) -> None:
        with self._changed:
            later = [(me + step) % self.count for step in range(1, self.count + 1)]
            self._turn = next((number for number in later if number not in self._ended), me)
            self._changed.notify_all()


the: Replicas = Replicas(1)
_thread.rank = 0


def rank() -> int:
    """The replica that runs; 0 where there is one only."""
    return getattr(_thread, "rank", 0)


def start(count: int, body: Callable[[], None]) -> None:
    """Runs `body` in `count` replicas of this process."""
    global the
    the = Replicas(count)
    the.run(body)


def average_gradients(parameters: list[torch.nn.Parameter]) -> None:
    """Every replica's gradients become the mean of all replicas'; a gradient that one lacks counts as zeros."""
    if the.count == 1:
        return
    all_of_them = the.exchange([None if each.grad is None else each.grad.clone() for each in parameters])
    for place, parameter in enumerate(parameters):
        grads = [grads[place] for grads in all_of_them if grads[place] is not None]
        if grads:
            total = torch.zeros_like(grads[0])
            for grad in reversed(grads) if os.environ.get("REFERENCE_REVERSED") else grads:
                total += grad / the.count
            parameter.grad = total


def copy_from_first(module: torch.nn.Module) -> None:
    """Every replica's parameters and buffers become the first one's."""
    state = the.exchange({name: value.clone() for name, value in module.state_dict().items()})[0]
    module.load_state_dict(state)
