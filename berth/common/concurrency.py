"""Background tasks, and functions that run work for many items in threads. Ctrl-C stops all of it."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from berth.common.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

_POLL_S = 0.2
_SHUTDOWN_S = 5.0


class BackgroundTask(Generic[Result]):
    """Runs `work` in a thread and keeps its result or its error."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: list[Result] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def settle(self, timeout_s: float) -> None:
        """Waits for the end of the work, at most `timeout_s`, because the end of the process would cut the work off.
        Raises nothing.
        """
        self._done.wait(timeout_s)

    def result(self) -> Result:
        """Waits for the result and returns it, or raises the error of `work`."""
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


def run_parallel(items: Sequence[Item], work: Callable[[Item, threading.Event], Result]) -> list[Result | UserError]:
    """The results of `work` in the order of the items. A UserError takes the place of its item's result; any other
    error stops all work and is raised.

    work: as for `run_all`.
    """

    def attempt(item: Item, stopped: threading.Event) -> Result | UserError:
        try:
            return work(item, stopped)
        except UserError as error:
            return error

    return run_all(items, attempt)


def run_all(
    items: Sequence[Item], work: Callable[[Item, threading.Event], Result], *, workers: int | None = None
) -> list[Result]:
    """The results of `work` in the order of the items; the first error stops all work and is raised.

    work: gets an item, and an event that is set when it has to stop; workers: the number of threads, None for one per
    item.
    """
    stopped = threading.Event()
    # Counts ended threads. Not `Thread.join`: in Python 3.11 a join that a signal interrupts marks the thread as ended.
    ended = threading.Semaphore(0)
    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    waiting = queue.SimpleQueue[tuple[int, Item]]()
    for numbered in enumerate(items):
        waiting.put(numbered)

    def run() -> None:
        try:
            while not stopped.is_set():
                number, item = waiting.get_nowait()
                results[number] = work(item, stopped)
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)
        finally:
            ended.release()

    running = min(workers or len(items), len(items))
    # Daemon threads: the process may end while one of them waits for a registry that does not answer.
    for _ in range(running):
        threading.Thread(target=run, daemon=True).start()
    try:
        while running and not errors:
            running -= ended.acquire(timeout=_POLL_S)  # the time-out lets signal handlers run
    finally:
        stopped.set()
        while running and ended.acquire(timeout=_SHUTDOWN_S):
            running -= 1
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]
