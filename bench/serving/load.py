"""An HTTP/1.1 client for a server on loopback, with a closed loop and an open loop.

In a closed loop a fixed number of clients send one request after the other, each on a persistent connection. In an open
loop requests are sent at given times, whether or not earlier ones were answered, as many independent users would do.
Its times count from the moment when a request was due, so that a delay of the client is included. asyncio's raw streams
keep the client cheap: it shares the cores with the server, and the CPU time that it takes is measured.
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
"""Seconds until a client gives up. SageMaker waits 60, so a server must have answered by then."""
LOST = 0
"""The status of a request that got no answer."""
PING = f"GET /ping HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode()
_REUSED_WITHIN = (
    5.0  # seconds; a server may close a connection that is idle for longer, which would look like a lost request
)


@dataclass(frozen=True, slots=True)
class Reply:
    """The outcome of one request. due: seconds after the start; late: seconds from then until it was sent; seconds:
    from when it was due to the last byte of the answer; lost: the reason why it got no answer.
    """

    due: float
    late: float
    seconds: float
    status: int
    body: bytes
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The replies in the order of the requests. seconds: until the last answer; cpu_seconds: of this process."""

    replies: tuple[Reply, ...]
    seconds: float
    cpu_seconds: float


def invocation(body: bytes) -> bytes:
    """The bytes of a POST to /invocations."""
    header = f"POST /invocations HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Type: application/json\r\n"
    return f"{header}Content-Length: {len(body)}\r\n\r\n".encode() + body


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Times of independent requests, `rate` per second (a Poisson process)."""
    chance = random.Random(seed)
    moments = itertools.accumulate(chance.expovariate(rate) for _ in itertools.count())
    return list(itertools.takewhile(lambda moment: moment < seconds, moments))


def closed_loop(port: int, bodies: Sequence[bytes], concurrency: int) -> Load:
    """Send each body once. Each of `concurrency` clients takes the next body when it has its answer."""

    async def work(client: "_Client") -> list[Reply]:
        waiting = iter(enumerate(map(invocation, bodies)))
        replies: dict[int, Reply] = {}

        async def one() -> None:
            for number, message in waiting:
                replies[number] = await client.ask(message, client.now())

        await asyncio.gather(*(one() for _ in range(concurrency)))
        return [replies[number] for number in sorted(replies)]

    return _measured(port, work)[0]


def open_loop(
    port: int, bodies: Sequence[bytes], due: Sequence[float], pings: Sequence[float] = ()
) -> tuple[Load, Load]:
    """Send a request at each time in `due`, repeating the bodies, and a GET /ping at each time in `pings`. Returns the
    replies to both after the last answer.
    """

    async def work(client: "_Client") -> list[Reply]:
        return await client.ask_each(list(map(invocation, bodies)), due)

    async def ping(client: "_Client") -> list[Reply]:
        return await client.ask_each([PING], pings)

    replies, pinged = _measured(port, work, ping)
    return replies, pinged


def _measured(port: int, *works: Callable[["_Client"], Coroutine[Any, Any, list[Reply]]]) -> list[Load]:
    """Run the functions at the same time, each with its own connections. The CPU time is that of all of them."""

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
    """Connections to one port. The most recently used idle one is used first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._began = time.perf_counter()
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def close(self) -> None:
        for _, _, writer in self._idle:
            writer.close()

    async def ask_each(self, messages: Sequence[bytes], due: Sequence[float]) -> list[Reply]:
        """Send one message at each time, repeating them."""
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
    """Status, body, and whether the connection stays open. ValueError if the answer is not HTTP/1.1."""
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
    raise ValueError("the answer has no length")


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body
