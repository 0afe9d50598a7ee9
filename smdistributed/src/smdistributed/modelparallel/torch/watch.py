"""Ranks hear of each other beside the work: of an end, of a failed step, of two that wait for each other.

Nothing that waits in torch.distributed can be told to stop. So each rank has a thread, connected with that of rank 0,
which passes on what it hears; a connection that closes tells of a rank that was killed. What waits asks here for the
cause when its own connection breaks. Where nothing breaks, the thread ends the process with a sentence.
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
"""Seconds after which a rank says what it waits for; most waits are shorter."""
PATIENCE = 10.0
"""Seconds after which a line names those that do not come to a call that all make together."""
GRACE_WAITING, GRACE_ENDED = 3.0, 6.0
"""Seconds from when a wait is known to be in vain, or a rank to have ended, until the process is ended."""
CAUSE = 3.0
"""Seconds that a broken connection waits for the news why."""
_TOKEN_BYTES = 16


class RankLost(RuntimeError):
    """Another rank has ended, or will never do what this one waits for."""


class Watch:
    """This rank's end. `links`: connections, by rank; rank 0 has one to each, the others have one to rank 0."""

    def __init__(self, rank: int, links: Mapping[int, socket.socket]) -> None:
        self.rank, self.peers, self.failures = rank, Peers(), 0
        self._links = dict(links)
        self._buffers = dict.fromkeys(links, b"")
        self._lock, self._news = threading.Lock(), threading.Condition()
        self._mine: tuple[Waiting, float] | None = None
        self._barrier: tuple[Waiting, float] | None = None
        self._told: Waiting | None = None
        self._together, self._missed = False, False
        self._since: tuple[str, float] | None = None
        self._over = False
        self._abandoned: list[Any] = []

    @property
    def connected(self) -> bool:
        """Whether it hears of any other rank."""
        return bool(self._buffers)

    def start(self) -> None:
        """Listen, until the process ends."""
        threading.Thread(target=self._run, name="smp-watch", daemon=True).start()

    # ---- what the process does ----

    @contextmanager
    def waiting(self, what: str, ranks: Sequence[int], *, together: bool = False) -> Iterator[None]:
        """Within it this rank waits for others; only its main thread says so.

        `together`: they come to this call at about the same time, so that a line names who does not.
        """
        before = self._mine, self._together
        self._mine, self._together, self._missed = (Waiting(what, tuple(ranks)), time.monotonic()), together, False
        try:
            yield
        finally:
            self._mine, self._together = before

    @contextmanager
    def named(self, ranks: Sequence[int], *, replicas: bool = False) -> Iterator[None]:
        """Within it torch.distributed talks to these ranks; RankLost, in its error's stead, if one of them is gone.

        `replicas`: they hold the same partition, and a failed step is what ended one.
        """
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, RankLost):
                raise
            failed = self.failed_at(ranks) if replicas else None
            raise (RankLost(failed) if failed else self.cause(ranks)) from error

    def step_failed(self, text: str) -> None:
        """Tell all ranks that a step failed here."""
        self.failures += 1
        self._tell({"rank": self.rank, "failed": self.failures, "text": text})

    def wait_for_replicas(self, work: Any, ranks: Sequence[int]) -> None:
        """Wait for an exchange with these ranks. RankLost if a step failed at one of them, which will not come."""
        pause = 5e-5
        while not work.is_completed():
            if found := self.peers.failed_more_often(self.failures, ranks):
                self._abandoned.append(work)  # its thread still uses it
                raise RankLost(found)
            time.sleep(pause)
            pause = min(1.5 * pause, 0.05)
        work.wait()

    def end(self, how: str) -> None:
        """Tell all ranks that this one ends; "" is as it should."""
        if not self._over:
            self._over = True
            self._tell({"rank": self.rank, "ended": how})

    def forget(self) -> None:
        """In a child of this process, which has copies of the connections: they would outlive it."""
        self._over = True
        for link in self._links.values():
            link.close()

    def failed_at(self, ranks: Sequence[int]) -> str | None:
        """What failed at one of these ranks and not here, as soon as that is known."""
        self._heard(lambda: self.peers.failed_more_often(self.failures, ranks) or self.peers.broken())
        return self.peers.failed_more_often(self.failures, ranks)

    def _heard(self, ask: Callable[[], str | None]) -> str | None:
        """An answer that some news may bring, if it does within CAUSE seconds."""
        until = time.monotonic() + CAUSE
        with self._news:
            while (found := ask()) is None and self._news.wait(until - time.monotonic()):
                pass
        return found

    def cause(self, ranks: Sequence[int]) -> RankLost:
        """Why the connection to one of these ranks broke, as soon as that is known."""
        found = self._heard(self._verdict)
        others = " or ".join(str(each) for each in ranks if each != self.rank)
        return RankLost(found or f"The connection to rank {others} broke; look at its log.")

    def _verdict(self) -> str | None:
        found = self._waits()
        return self.peers.broken() or self.peers.in_vain(self.rank, found[0] if found else None)

    def _waits(self) -> tuple[Waiting, float] | None:
        """What this rank waits for, and since when."""
        if self._mine:
            return self._mine
        found = torchs_barrier()
        if found is None or self._barrier is None or self._barrier[0] != found:
            self._barrier = (found, time.monotonic()) if found else None
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
            self._say_what_is_waited_for()
            self._end_if_in_vain()

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
            self._tell(event, besides=source)

    def _tell(self, event: Mapping[str, Any], besides: int = -1) -> None:
        data = json.dumps(event).encode() + b"\n"
        with self._lock:
            for rank, link in list(self._links.items()):
                if rank != besides:
                    try:
                        link.sendall(data)
                    except OSError:
                        continue  # it has ended: reading from it tells so

    def _say_what_is_waited_for(self) -> None:
        mine, now = self._waits(), time.monotonic()
        long = mine[0] if mine and now - mine[1] > LONG_WAIT else None
        if mine and self._together and not self._missed and now - mine[1] > PATIENCE:
            self._missed = True
            if said := self.peers.missing(self.rank, mine[0]):
                print(f"smp: {said}", file=sys.stderr, flush=True)
        if long == self._told:
            return
        self._told = long
        if long is None:
            self._tell({"rank": self.rank, "goes on": True})
        else:
            self._tell({"rank": self.rank, "what": long.what, "ranks": long.ranks})

    def _end_if_in_vain(self) -> None:
        found, now = self._verdict(), time.monotonic()
        if found is None or self._over:
            self._since = None
            return
        if self._since is None or self._since[0] != found:
            self._since = (found, now)
        grace = GRACE_ENDED if self.peers.broken() else GRACE_WAITING
        if now - self._since[1] > grace:
            self.end(found)
            end_process(found)


def _main_threads_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def torchs_barrier() -> Waiting | None:
    """Where the main thread waits in torch.distributed's barrier, as scripts do while the first rank saves."""
    frame = _main_threads_frame()
    while frame is not None and (frame.f_code.co_name, frame.f_globals.get("__name__")) != _BARRIER:
        frame = frame.f_back
    try:
        ranks = dist.get_process_group_ranks(frame.f_locals.get("group")) if frame else []
    except (KeyError, ValueError):  # no group of this rank, or none any more
        ranks = []
    return Waiting("torch.distributed.barrier()", tuple(ranks)) if ranks else None


_BARRIER = ("barrier", "torch.distributed.distributed_c10d")


def end_process(sentence: str) -> None:
    """As an uncaught exception of the main thread would, which can't be reached where it waits."""
    frame = _main_threads_frame()
    print("".join(["This rank was here:\n", *traceback.format_stack(frame)]), file=sys.stderr)
    sys.excepthook(RankLost, RankLost(sentence), None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def keep_alive(link: socket.socket) -> None:
    """Have a host that is gone noticed in about ten seconds."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # macOS lacks one of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def connect(rank: int, size: int, host: str, share: Callable[[Any], list[Any]]) -> Watch:
    """Connect all ranks' watches. `host`: rank 0's; `share`: what each rank gave, by rank. Every rank calls it."""
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
    """The connections of all other ranks; whoever does not know the token is none."""
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
    """The exception that ends this process, "" if none does."""
    error = getattr(sys, "last_value", None)
    return "" if error is None else "".join(traceback.format_exception_only(error)).strip()


def _leave(watch: Watch) -> None:
    """Tell the other ranks how this one ends. After RankLost, end the process here with exit code 1: gloo's threads may
    still wait for the lost rank, and would abort the process with SIGABRT while Python shuts down.
    """
    watch.end(how_it_ends())
    if isinstance(getattr(sys, "last_value", None), RankLost):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
