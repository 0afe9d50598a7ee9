"""Tells every rank when another one ends or fails a step, or when two wait for each other in different calls.

A wait in torch.distributed can't be interrupted. So each rank has a thread that is connected to rank 0's, which
forwards all events; a closed connection means that a rank was killed. When a rank's torch connection breaks, it looks
up the cause here. If none breaks, the thread ends the process with an error.
"""

import atexit
import json
import os
import secrets
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch.distributed as dist

from .peers import Peers, Waiting

TICK = 0.25
LONG_WAIT = 2.0
"""Seconds after which a rank tells the others what it waits for; most waits are shorter."""
PATIENCE = 10.0
"""Seconds after which the ranks that have not joined a collective call are logged."""
GRACE_WAITING, GRACE_ENDED = 3.0, 6.0
"""Seconds until the process is ended: after its wait can't succeed any more, and after a rank has failed."""
CAUSE = 3.0
"""Seconds to wait for the cause of a broken connection."""
_TOKEN_BYTES = 16


class RankLost(RuntimeError):
    """Another rank has ended, or will never make the call that this one waits for."""


class Watch:
    """The watch of one rank. links: rank → connection; rank 0 has one to every rank, the others only one to rank 0."""

    def __init__(self, rank: int, links: Mapping[int, socket.socket]) -> None:
        self.rank, self.peers, self.failures = rank, Peers(), 0
        self._links = dict(links)
        self._buffers = dict.fromkeys(links, b"")
        self._lock, self._news = threading.Lock(), threading.Condition()
        self._mine: tuple[Waiting, float] | None = None
        self._barrier: tuple[Waiting, float] | None = None
        self._reported: Waiting | None = None
        self._together, self._missed = False, False
        self._since: tuple[str, float] | None = None
        self._over = False
        self._abandoned: list[Any] = []
        self._failed_step: int | None = None

    @property
    def connected(self) -> bool:
        """Whether there are connections to other ranks."""
        return bool(self._buffers)

    def start(self) -> None:
        """Start the thread; it runs until the process ends."""
        threading.Thread(target=self._run, name="smp-watch", daemon=True).start()

    # ---- called by the process ----

    @contextmanager
    def waiting(self, what: str, ranks: Sequence[int], *, together: bool = False, busy: bool = False) -> Iterator[None]:
        """In this context the rank waits in the call `what` for `ranks`; for the main thread only.

        together: all ranks make the call at about the same time, so late ones are logged. busy: see `Waiting`.
        """
        before = self._mine, self._together
        self._mine = Waiting(what, tuple(ranks), busy), time.monotonic()
        self._together, self._missed = together, False
        try:
            yield
        finally:
            self._mine, self._together = before

    @contextmanager
    def explain_errors(self, ranks: Sequence[int], *, replicas: bool = False, mixed: bool = False) -> Iterator[None]:
        """In this context torch.distributed talks to these ranks; its RuntimeErrors become RankLost with the cause.

        replicas: the ranks hold the same partition, so the cause may be a failed step of another replica. mixed: the
        context contains the script's own operations too, whose errors stay as they are.
        """
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, RankLost) or (mixed and not is_of_distributed(error)):
                raise
            failed = self.failed_at(ranks) if replicas else None
            raise (RankLost(failed) if failed else self.cause(ranks)) from error

    def step_failed(self, text: str, step: int) -> None:
        """Tell all ranks that the step of this number failed here; once, or replicas would count different failures."""
        if step == self._failed_step:
            return
        self._failed_step = step
        self.failures += 1
        self._tell({"rank": self.rank, "failed": self.failures, "text": text})

    def wait_for(self, work: Any, ranks: Sequence[int], *tensors: Any, spin: float = 0.0) -> None:
        """Wait for an exchange of tensors over gloo. RankLost if a step failed at one of these ranks.

        That rank then never joins the exchange. spin: for how many seconds to look without sleeping.
        """
        pause, since = 5e-5, time.monotonic()
        while not work.is_completed():
            if failure := self.peers.failed_more_often(self.failures, ranks):
                self._abandoned.append((work, tensors))  # keep them alive: torch's thread still uses them
                raise RankLost(failure)
            if time.monotonic() - since < spin:
                time.sleep(0)
            else:
                time.sleep(pause)
                pause = min(1.5 * pause, 0.05)
        work.wait()

    def end(self, how: str) -> None:
        """Tell all ranks how this one ends; "": normally."""
        if not self._over:
            self._over = True
            self._tell({"rank": self.rank, "ended": how})

    def forget(self) -> None:
        """Close the connections in a forked child; otherwise they would stay open after this process ended."""
        self._over = True
        for link in self._links.values():
            link.close()

    def failed_at(self, ranks: Sequence[int]) -> str | None:
        """The error if a step failed at one of these ranks and not here; waits up to CAUSE seconds for the event."""
        self._wait_for_event(lambda: self.peers.failed_more_often(self.failures, ranks) or self.peers.broken())
        return self.peers.failed_more_often(self.failures, ranks)

    def _wait_for_event(self, read_error: Callable[[], str | None]) -> str | None:
        """The result of `read_error`, called again after every event for up to CAUSE seconds while it is None."""
        until = time.monotonic() + CAUSE
        with self._news:
            while (error := read_error()) is None and self._news.wait(until - time.monotonic()):
                pass
        return error

    def cause(self, ranks: Sequence[int]) -> RankLost:
        """Why the connection to one of these ranks broke; waits up to CAUSE seconds for the event."""
        error = self._wait_for_event(lambda: self.peers.broken() or self._wait_that_fails())
        others = " or ".join(str(each) for each in ranks if each != self.rank)
        return RankLost(error or f"The connection to rank {others} broke; look at its log.")

    def _wait_that_fails(self) -> str | None:
        waiting = self._waits()
        return self.peers.cannot_succeed(self.rank, waiting[0] if waiting else None)

    def _waits(self) -> tuple[Waiting, float] | None:
        """What this rank waits for, and since when."""
        if self._mine:
            return self._mine
        barrier = torchs_barrier()
        if barrier is None or self._barrier is None or self._barrier[0] != barrier:
            self._barrier = (barrier, time.monotonic()) if barrier else None
        return self._barrier

    # ---- the thread ----

    def _run(self) -> None:
        while not self._over:
            links = {link: rank for rank, link in self._links.items()}
            if links:
                for link in select.select(list(links), [], [], TICK)[0]:
                    self._read(links[link], link)
            else:
                time.sleep(TICK)
            self._report_wait()
            self._end_if_hopeless()

    def _read(self, rank: int, link: socket.socket) -> None:
        try:
            data = link.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._links.pop(rank, None)
            self._hear({"rank": rank, "ended": None}, rank)
            return
        *lines, self._buffers[rank] = (self._buffers[rank] + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line), rank)

    def _hear(self, event: Mapping[str, Any], source: int) -> None:
        with self._news:
            self.peers.hear(event)
            self._news.notify_all()
        if self.rank == 0:
            self._tell(event, exclude=source)

    def _tell(self, event: Mapping[str, Any], exclude: int = -1) -> None:
        data = json.dumps(event).encode() + b"\n"
        with self._lock:
            for rank, link in list(self._links.items()):
                if rank != exclude:
                    try:
                        link.sendall(data)
                    except OSError:
                        continue  # that rank has ended; the next read reports it

    def _report_wait(self) -> None:
        mine, now = self._waits(), time.monotonic()
        long = mine[0] if mine and not mine[0].busy and now - mine[1] > LONG_WAIT else None
        if mine and self._together and not self._missed and now - mine[1] > PATIENCE:
            self._missed = True
            if line := self.peers.missing(self.rank, mine[0]):
                print(f"smp: {line}", file=sys.stderr, flush=True)
        if long == self._reported:
            return
        self._reported = long
        if long is None:
            self._tell({"rank": self.rank, "goes on": True})
        else:
            self._tell({"rank": self.rank, "what": long.what, "ranks": long.ranks})

    def _end_if_hopeless(self) -> None:
        error, now = self.peers.failed_rank() or self._wait_that_fails(), time.monotonic()
        if error is None or self._over:
            self._since = None
            return
        if self._since is None or self._since[0] != error:
            self._since = (error, now)
        grace = GRACE_ENDED if self.peers.broken() else GRACE_WAITING
        if now - self._since[1] > grace:
            self.end(error)
            end_process(error)


def is_of_distributed(error: RuntimeError) -> bool:
    """Whether torch.distributed raised an error; gloo's errors have no class of their own, but name its source."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _main_threads_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def torchs_barrier() -> Waiting | None:
    """The main thread's wait in torch.distributed.barrier(), which scripts call while the first rank saves; or None."""
    frame = _main_threads_frame()
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != _BARRIER:
        frame = frame.f_back
    try:
        ranks = dist.get_process_group_ranks(frame.f_locals.get("group")) if frame else []
    except (KeyError, ValueError):  # not a group of this rank, or already destroyed
        ranks = []
    return Waiting("torch.distributed.barrier()", tuple(ranks)) if ranks else None


_BARRIER = ("barrier", "torch.distributed.distributed_c10d")


def end_process(sentence: str) -> None:
    """End the process as if RankLost were raised in the main thread, whose wait can't be interrupted."""
    frame = _main_threads_frame()
    print("".join(["This rank was here:\n", *traceback.format_stack(frame)]), file=sys.stderr)
    sys.excepthook(RankLost, RankLost(sentence), None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def keep_alive(link: socket.socket) -> None:
    """Make the kernel notice within about ten seconds that a host is gone."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # macOS lacks one of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def connect(rank: int, size: int, host: str, share: Callable[[Any], list[Any]]) -> Watch:
    """Connect the watches of all ranks; every rank calls it. host: rank 0's. share: an all-gather of objects."""
    if rank == 0:
        with socket.create_server(("", 0), backlog=size) as server:
            token = secrets.token_bytes(_TOKEN_BYTES)
            share((server.getsockname()[1], token))
            links = _accept(server, token, size)
    else:
        port, token = share(None)[0]
        link = socket.create_connection((host, port), timeout=60)
        link.settimeout(None)
        link.sendall(token + rank.to_bytes(4, "little"))
        links = {0: link}
    for link in links.values():
        keep_alive(link)
    watch = Watch(rank, links)
    watch.start()
    atexit.register(_leave, watch)
    os.register_at_fork(after_in_child=watch.forget)
    return watch


def _accept(server: socket.socket, token: bytes, size: int) -> dict[int, socket.socket]:
    """The connections of all other ranks; connections without the token are closed."""
    links: dict[int, socket.socket] = {}
    server.settimeout(60)
    while len(links) < size - 1:
        link = server.accept()[0]
        link.settimeout(10)
        try:
            hello = b""
            while len(hello) < _TOKEN_BYTES + 4 and (more := link.recv(_TOKEN_BYTES + 4 - len(hello))):
                hello += more
        except OSError:
            hello = b""
        if not secrets.compare_digest(hello[:_TOKEN_BYTES], token):
            link.close()
            continue
        link.settimeout(None)
        links[int.from_bytes(hello[_TOKEN_BYTES:], "little")] = link
    return links


def how_it_ends() -> str:
    """The uncaught exception that ends this process; "" if there is none."""
    error = getattr(sys, "last_value", None)
    return "" if error is None else "".join(traceback.format_exception_only(error)).strip()


def _leave(watch: Watch) -> None:
    """Tell the other ranks how this one ends. After RankLost, end the process at once with exit code 1.

    Otherwise gloo's threads, which may still wait for the lost rank, could abort it with SIGABRT during shutdown.
    """
    watch.end(how_it_ends())
    if isinstance(getattr(sys, "last_value", None), RankLost):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
