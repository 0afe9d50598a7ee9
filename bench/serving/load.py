"""A client over HTTP/1.1 to a server on loopback: a closed loop, and an open one that does not wait for answers.

In a closed loop so many clients ask one question after the other, each on a connection that stays open. In an open loop
requests are due at given moments, whatever became of those before, as from many independent users; a time counts from
the moment when the request was due, so that a client which is late hides nothing. Raw streams of asyncio, for the
client has the same cores as the server; what it took of them is measured.
"""

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

LOOPBACK = "127.0.0.1"
ANSWER_WITHIN = 90.0
"""Seconds until a client gives up; SageMaker waits 60, so an honest server has answered or refused by then."""
LOST = 0
"""The status of a request without an answer."""
PING = f"GET /ping HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode()
_REUSED_WITHIN = 5.0  # seconds; servers close idle connections, and one that does so just now would look like a loss


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one request. due: seconds after the begin; late: seconds until it was sent; seconds: from due to the
    last byte of the answer; lost: why there is none.
    """

    due: float
    late: float
    seconds: float
    status: int
    body: bytes
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """What came of a load, in the order of its requests. seconds: to the last answer; cpu_seconds: this process's."""

    replies: tuple[Reply, ...]
    seconds: float
    cpu_seconds: float


def invocation(body: bytes) -> bytes:
    """POST /invocations as bytes."""
    header = f"POST /invocations HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\n"
    return f"{header}Content-Length: {len(body)}\r\n\r\n".encode() + body


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """The moments of requests that come independently of each other, `rate` a second (a Poisson process)."""
    chance = random.Random(seed)
    moments = itertools.accumulate(chance.expovariate(rate) for _ in itertools.count())
    return list(itertools.takewhile(lambda moment: moment < seconds, moments))


def closed_loop(port: int, bodies: Sequence[bytes], concurrency: int) -> Load:
    """Each body once, by `concurrency` clients, who take the next one that nobody has taken."""

    async def work(client: "_Client") -> list[Reply]:
        waiting = iter(enumerate(map(invocation, bodies)))
        done: dict[int, Reply] = {}

        async def one() -> None:
            for number, message in waiting:
                done[number] = await client.ask(message, client.now())

        await asyncio.gather(*(one() for _ in range(concurrency)))
        return [done[number] for number in sorted(done)]

    return _measured(port, work)[0]


def open_loop(
    port: int, bodies: Sequence[bytes], due: Sequence[float], pings: Sequence[float] = ()
) -> tuple[Load, Load]:
    """A request at each moment of `due`, the bodies over and over, and a GET /ping at each of `pings`: what came of
    both. Returns when the last is answered.
    """

    async def work(client: "_Client") -> list[Reply]:
        return await client.ask_each(list(map(invocation, bodies)), due)

    async def ping(client: "_Client") -> list[Reply]:
        return await client.ask_each([PING], pings)

    asked, pinged = _measured(port, work, ping)
    return asked, pinged


def _measured(port: int, *works: Callable[["_Client"], Coroutine[Any, Any, list[Reply]]]) -> list[Load]:
    """Each of them at the same time with connections of its own. The processor time is that of all."""

    async def run() -> list[tuple[list[Reply], float]]:
        async def one(work: Callable[["_Client"], Coroutine[Any, Any, list[Reply]]]) -> tuple[list[Reply], float]:
            client = _Client(port)
            try:
                return await work(client), client.now()
            finally:
                client.close()

        return await asyncio.gather(*map(one, works))

    before = time.process_time()
    ended = asyncio.run(run())
    took = time.process_time() - before
    return [Load(tuple(replies), seconds, took) for replies, seconds in ended]


class _Client:
    """Connections to one port, of which the last that was used is used first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._began = time.perf_counter()
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    def now(self) -> float:
        """Seconds since the begin."""
        return time.perf_counter() - self._began

    def close(self) -> None:
        for _, _, writer in self._idle:
            writer.close()

    async def ask_each(self, messages: Sequence[bytes], due: Sequence[float]) -> list[Reply]:
        """The messages over and over, one at each moment."""
        asking = []
        for moment, message in zip(due, itertools.cycle(messages), strict=False):
            if (early := moment - self.now()) > 0:
                await asyncio.sleep(early)
            asking.append(asyncio.create_task(self.ask(message, moment)))
        return await asyncio.gather(*asking)

    async def ask(self, message: bytes, due: float) -> Reply:
        late = self.now() - due
        status, body, lost = LOST, b"", ""
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                status, body = await self._exchange(message)
        except TimeoutError:
            lost = f"no answer within {ANSWER_WITHIN:.0f} s"
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            lost = f"{type(error).__name__}: {error}"
        return Reply(due, late, self.now() - due, status, body, lost)

    async def _exchange(self, message: bytes) -> tuple[int, bytes]:
        reader, writer = await self._connection()
        kept = False
        try:
            writer.write(message)
            await writer.drain()
            status, body, kept = await _response(reader)
        finally:
            if kept:
                self._idle.append((self.now(), reader, writer))
            else:
                writer.close()
        return status, body

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            since, reader, writer = self._idle.pop()
            if self.now() - since < _REUSED_WITHIN and not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(LOOPBACK, self._port)


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Status, body, and whether the connection stays open. ValueError for what is no HTTP/1.1."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, status, *_ = head[0].split(" ", 2)
    fields = dict(line.lower().split(":", 1) for line in head[1:] if line)
    if fields.get("transfer-encoding", "").strip() == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(int(fields["content-length"] if "content-length" in fields else _no_length()))
    kept = version == "HTTP/1.1" and fields.get("connection", "").strip() != "close"
    return int(status), body, kept


def _no_length() -> str:
    raise ValueError("an answer of unknown length")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body
