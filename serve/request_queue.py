"""The queue before the model's thread: in order of arrival, bounded, and without what nobody waits for any more."""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.handler import PreparedRequest
from berth.serve.limits import RequestLimits

_MEMORY = 0.9
"""What a request counts for in the model's speed after each one that came behind it."""


class RequestQueue:
    """Prepared requests with their futures. A future stays pending until its answer is there, so that it can be
    cancelled at any time: it leaves the queue then, and the model's thread looks at it between batches.
    """

    def __init__(self, limits: RequestLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[Future[Any], PreparedRequest] = {}
        self._waiting_tokens = 0
        self._running_tokens = 0
        self._began = 0.0
        self._done_tokens = 0.0
        self._done_seconds = 0.0

    def put(self, prepared: PreparedRequest) -> Future[Any]:
        """Queue a request; ServeError (503) if too much waits already."""
        future: Future[Any] = Future()
        with self._changed:
            self._check(prepared.tokens)
            self._waiting[future] = prepared
            self._waiting_tokens += prepared.tokens
            self._changed.notify()
        future.add_done_callback(self._drop)
        return future

    def take(self) -> tuple[PreparedRequest, Future[Any]]:
        """The next request, as soon as there is one; `finish` must follow."""
        with self._changed:
            while not self._waiting:
                self._changed.wait()
            future, prepared = next(iter(self._waiting.items()))
            self._remove(future)
            self._running_tokens = prepared.tokens
            self._began = self._clock()
            return prepared, future

    def finish(self, *, completed: bool) -> None:
        """The model is free again; how long it took counts if it went through all windows."""
        with self._changed:
            if completed:
                self._done_tokens = _MEMORY * self._done_tokens + self._running_tokens
                self._done_seconds = _MEMORY * self._done_seconds + self._clock() - self._began
            self._running_tokens = 0

    def estimated_wait(self) -> float:
        """Seconds until the model would begin with one more request, as far as can be told; 0 before its first one."""
        if not self._done_tokens:
            return 0.0
        pace = self._done_seconds / self._done_tokens
        running = pace * self._running_tokens - (self._clock() - self._began) if self._running_tokens else 0.0
        return pace * self._waiting_tokens + max(0.0, running)

    def _check(self, tokens: int) -> None:
        seconds = self.estimated_wait()
        too_long = seconds - self._limits.wait_seconds
        if too_long > 0:
            waiting, retry_after = f"the model has work for {seconds:.0f} s", math.ceil(too_long)
        elif self._waiting and self._waiting_tokens + tokens > self._limits.waiting_tokens:
            waiting, retry_after = f"{self._waiting_tokens} tokens wait for the model", 1
        else:
            return
        raise ServeError(Kind.OVERLOADED, f"{waiting} already: send the request again later", retry_after)

    def _drop(self, future: Future[Any]) -> None:
        with self._changed:
            if future in self._waiting:
                self._remove(future)

    def _remove(self, future: Future[Any]) -> None:
        self._waiting_tokens -= self._waiting.pop(future).tokens
