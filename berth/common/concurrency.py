"""Several pieces of work at the same time, of which one that fails does not stop the others, and Ctrl-C stops all."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from berth.common.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

_POLL_S = 0.2
_LAST_WORDS_S = 5.0


class BackgroundTask(Generic[Result]):
    """What a thread of its own works out meanwhile.

    at_once: without it the work begins with `start`, or when it is asked for.
    """

    def __init__(self, work: Callable[[], Result], *, at_once: bool = True) -> None:
        self._work = work
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._result: list[Result] = []
        self._error: BaseException | None = None
        if at_once:
            self.start()

    def start(self) -> None:
        """Begins, if nobody has begun yet."""
        if self._begun.acquire(blocking=False):
            try:
                threading.Thread(target=self._run, daemon=True).start()
            except RuntimeError as error:  # too many threads
                self._error = error
                self._done.set()

    def settle(self, timeout_s: float) -> None:
        """Waits so long for work that has begun to end, whatever becomes of it: a process that ends cuts it off."""
        if self._begun.locked():
            self._done.wait(timeout_s)

    def result(self) -> Result:
        """Waits for it, and gives it or raises what went wrong."""
        self.start()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result[0]

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()


def run_parallel(
    items: Sequence[Item], work: Callable[[Item, threading.Event], Result], *, at_once: int | None = None
) -> list[Result | UserError]:
    """What `work` gives for each item, in their order, or the UserError that ended it; any other error ends all.

    work: called with an event that is set once it has to stop; at_once: the number of threads, None for one per item.
    """
    return _run(items, work, at_once, fail_fast=False)


def run_all(
    items: Sequence[Item], work: Callable[[Item, threading.Event], Result], *, at_once: int | None = None
) -> list[Result]:
    """The same for work that makes sense only if all of it ends well: the first error stops the rest and is raised."""
    found = _run(items, work, at_once, fail_fast=True)
    return [each for each in found if not isinstance(each, UserError)]


def _run(
    items: Sequence[Item],
    work: Callable[[Item, threading.Event], Result],
    at_once: int | None,
    *,
    fail_fast: bool,
) -> list[Result | UserError]:
    stopped = threading.Event()
    # Waited for instead of the threads: in Python 3.11 a join that a signal breaks off takes its thread for ended.
    ended = threading.Semaphore(0)
    results: dict[int, Result | UserError] = {}
    broken: list[BaseException] = []
    waiting = queue.SimpleQueue[tuple[int, Item]]()
    for each in enumerate(items):
        waiting.put(each)

    def run() -> None:
        try:
            while not stopped.is_set():
                number, item = waiting.get_nowait()
                try:
                    results[number] = work(item, stopped)
                except UserError as error:
                    if fail_fast:
                        raise
                    results[number] = error
        except queue.Empty:
            pass
        except BaseException as error:
            broken.append(error)
        finally:
            ended.release()

    left = min(at_once or len(items), len(items))
    # Daemons: the process may end while one of them still waits for a registry that says nothing.
    for _ in range(left):
        threading.Thread(target=run, daemon=True).start()
    try:
        while left and not broken:
            left -= ended.acquire(timeout=_POLL_S)  # with an end, so that a signal gets through
    finally:
        stopped.set()
        while left and ended.acquire(timeout=_LAST_WORDS_S):
            left -= 1
    if broken:
        raise broken[0]
    return [results[number] for number in range(len(items))]
