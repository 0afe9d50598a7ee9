"""What a thread computes at the moment: for which microbatch, and whether in a region."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

_thread = threading.local()


def in_region() -> bool:
    """Whether this thread computes on the batches of its whole tensor parallel group."""
    return getattr(_thread, "inside", False)


@contextmanager
def region(*, inside: bool = True) -> Iterator[None]:
    """Set `in_region` in this context; a rank that serves modules gets it from the caller."""
    before, _thread.inside = in_region(), inside
    try:
        yield
    finally:
        _thread.inside = before


def current_microbatch() -> int | None:
    """The microbatch that this thread computes."""
    return getattr(_thread, "microbatch", None)


@contextmanager
def microbatch(index: int | None) -> Iterator[None]:
    """In this context the thread computes a microbatch."""
    before, _thread.microbatch = current_microbatch(), index
    try:
        yield
    finally:
        _thread.microbatch = before


class SameThreadState(AbstractContextManager[None]):
    """A context, for any thread, with the state that the creating thread has now.

    It can be entered again: a forward pass is repeated in each backward pass that goes through it.
    """

    def __init__(self) -> None:
        self._inside, self._index = in_region(), current_microbatch()
        self._entered: list[ExitStack] = []

    def __enter__(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(region(inside=self._inside))
            stack.enter_context(microbatch(self._index))
            self._entered.append(stack.pop_all())

    def __exit__(self, *_: object) -> None:
        self._entered.pop().close()
