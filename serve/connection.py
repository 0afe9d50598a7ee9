"""One client's connection: how long it may take, how many there may be, and which requests are no HTTP.

uvicorn leaves all three to the proxy before it; an endpoint's container has one, but batch transform and local mode
reach the port directly, and a proxy passes on what its client does. A connection waits for its client (for a header, a
body, the next request), or its client waits for an answer. Those that wait for their clients do so for a limited time,
and where there are too many, the one that has waited longest gives way to a new one. So /ping always gets in.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from berth.serve.codecs import JSON
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits

log = logging.getLogger(__name__)

Stage = Literal["header", "body", "idle", "response"]

_SHOWN = 200
MOST_OF_A_HEADER = 64 * 1024
"""Bytes: SageMaker's own headers and a caller's custom attributes have a few thousand."""
LARGE_HEADER = f"the request's header has more than {MOST_OF_A_HEADER} bytes: send less in it"
REFUSED = "berth.refused"
"""Where the scope of a request has the ServeError that its connection has answered it with."""


class WaitingConnections:
    """The connections of one server that wait for their clients, longest first."""

    def __init__(self, limits: RequestLimits, on_refusal: Callable[[ServeError], None] = lambda _: None) -> None:
        """`on_refusal` is called for what a connection refuses before it is a request."""
        self.limits = limits
        self.on_refusal = on_refusal
        self._connections: dict[ClientConnection, None] = {}

    def add(self, connection: "ClientConnection") -> None:
        self._connections.setdefault(connection)

    def remove(self, connection: "ClientConnection") -> None:
        self._connections.pop(connection, None)

    def close_longest(self) -> None:
        """Hang up on the one that has waited longest."""
        connection = next(iter(self._connections))
        self.remove(connection)
        connection.transport.abort()


class StrictConnection(h11.Connection):
    """h11's parser without what proxies read in two ways, which lets one request hide another (RFC 9112, section 11.2).

    Refused are Transfer-Encoding next to Content-Length (section 6.1 allows to) or in HTTP/1.0 (there it must be taken
    for faulty), and lines of a header that end with a bare line feed, which section 2.2 leaves to the recipient.
    """

    def next_event(self) -> Any:
        """See h11.Connection.next_event."""
        if self.their_state is h11.IDLE:
            header, _, _ = self.trailing_data[0].partition(b"\r\n\r\n")
            if len(header) > MOST_OF_A_HEADER:  # h11 looks at what has not come whole
                raise h11.RemoteProtocolError(LARGE_HEADER, error_status_hint=431)
            if b"\n" in header.replace(b"\r\n", b""):
                raise h11.RemoteProtocolError("a line of the header ends with a line feed alone")
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("Transfer-Encoding next to Content-Length, or in HTTP/1.0")
        return event


class ClientConnection(H11Protocol):
    """uvicorn's protocol with deadlines, a limit on connections, and refusals in the server's one body shape."""

    def __init__(self, waiting: WaitingConnections, **options: Any) -> None:
        super().__init__(**options)
        self.conn = StrictConnection(h11.SERVER, MOST_OF_A_HEADER)
        self._waiting = waiting
        self._limits = waiting.limits
        self._stage: Stage | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._update_stage()
        if len(self.connections) > self._limits.connections:
            self._waiting.close_longest()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, whoever ended it."""
        self._waiting.remove(self)
        for timer in (self._deadline, self._taking):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request, or of several."""
        super().data_received(data)
        self._update_stage()

    def on_response_complete(self) -> None:
        """The last byte of an answer has been written, though perhaps not been taken yet."""
        super().on_response_complete()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        if self.transport.get_write_buffer_size():
            self._taking = self.loop.call_later(self._limits.taking_seconds, self._abort_unless_taken)
        self._update_stage()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn calls when h11 can't read a request, where it handles the exception that says why."""
        error = sys.exception()
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(ServeError(Kind.HEADER_TOO_LARGE, LARGE_HEADER))
        else:
            sentence = f"the request is not valid HTTP/1.1 ({str(error)[:_SHOWN]}): send it with an HTTP library"
            self._refuse(ServeError(Kind.BAD_REQUEST, sentence))

    def _update_stage(self) -> None:
        """Note the stage that the connection has come to; a new one has a deadline of its own."""
        stage = self._stage_now()
        if stage == self._stage or self.transport.is_closing():
            return
        self._stage = stage
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if stage == "response":
            self._waiting.remove(self)
            return
        self._waiting.add(self)
        if stage != "idle":  # uvicorn closes those
            limits = self._limits
            seconds = limits.header_seconds if stage == "header" else limits.body_seconds
            self._deadline = self.loop.call_later(seconds, self._too_late, stage, seconds)

    def _stage_now(self) -> Stage:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        if self.conn.their_state is not h11.IDLE and self.cycle is not None and not self.cycle.response_complete:
            return "response"
        return "idle" if self.timeout_keep_alive_task is not None else "header"

    def _too_late(self, stage: Stage, seconds: float) -> None:
        if stage == "header" and not self.conn.trailing_data[0]:
            # Not one byte: an answer would be taken for that to a request which comes too late.
            self.transport.abort()
            return
        self._refuse(
            ServeError(Kind.TIMEOUT, f"the {stage} of the request did not arrive within {seconds:.0f} s: send it again")
        )

    def _refuse(self, refusal: ServeError) -> None:
        """Answer in the application's place, if nothing of an answer has been written yet, and close."""
        cycle = self.cycle if self.cycle is not None and not self.cycle.response_complete else None
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            if cycle is None:
                self._waiting.on_refusal(refusal)
            else:
                cycle.scope[REFUSED] = refusal  # type: ignore[literal-required]
            body = json.dumps(refusal.body()).encode()
            headers = [
                ("content-type", JSON),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=refusal.status, headers=headers),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if cycle is not None:
            cycle.disconnected = True  # the application must not answer a second time
        self.transport.close()

    def _abort_unless_taken(self) -> None:
        if self.transport.get_write_buffer_size():
            log.info("a client has not taken its answer within %.0f s", self._limits.taking_seconds)
            self.transport.abort()
