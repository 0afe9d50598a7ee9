"""Limits on clients' connections: how long the server waits for a client, and which connection it closes if there are
too many.

uvicorn leaves both to a proxy in front of it. An endpoint's container has one, but batch transform and local mode reach
the port directly, and a proxy passes on what its client does. Either a connection waits for its client (to send a
header, a body or the next request, or to receive a response), or the client waits for an answer. A connection waits for
its client for a limited time. If there are too many connections, the one that has waited longest is closed, so that
/ping always gets in.
"""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

WAIT_SECONDS = 75
"""Seconds to wait for a client: longer than common proxies keep idle connections, so the server never closes first."""
_STATE = "connection"
"""Key in a request's state; its value is the connection."""


class Connections:
    """The open connections of one server; an ASGI application around `app`, to see when requests begin and end."""

    def __init__(self, app: ASGIApp, most: int, seconds: float = WAIT_SECONDS) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds
        self._open: dict[ClientConnection, asyncio.Transport] = {}
        self._waiting: dict[ClientConnection, asyncio.TimerHandle] = {}  # the one that waits longest is first

    def connect(self, **options: Any) -> "ClientConnection":
        """The value of uvicorn's setting `http`: makes the protocol object of a new connection."""
        return ClientConnection(self, **options)

    def opened(self, connection: "ClientConnection", transport: asyncio.Transport) -> None:
        """A client has connected."""
        self._open[connection] = transport
        self._wait(connection)
        if len(self._open) > self._most:
            self._close(next(iter(self._waiting)))

    def lost(self, connection: "ClientConnection") -> None:
        """The connection is closed, by either side."""
        del self._open[connection]
        self._stop_waiting(connection)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["state"][_STATE]
        self._wait(connection)

        async def receive_and_note_end() -> Message:
            message = await receive()
            if not message.get("more_body"):
                self._stop_waiting(connection)
            return message

        if scope["method"] != "POST":  # nobody reads its body
            self._stop_waiting(connection)
        try:
            await self._app(scope, receive_and_note_end, send)
        finally:
            self._wait(connection)

    def _wait(self, connection: "ClientConnection") -> None:
        self._stop_waiting(connection)
        if connection in self._open:
            self._waiting[connection] = asyncio.get_running_loop().call_later(self._seconds, self._close, connection)

    def _stop_waiting(self, connection: "ClientConnection") -> None:
        if timer := self._waiting.pop(connection, None):
            timer.cancel()

    def _close(self, connection: "ClientConnection") -> None:
        """Close the connection at once, even if the client has not received its whole response."""
        self._stop_waiting(connection)
        self._open[connection].abort()


class ClientConnection(H11Protocol):
    """uvicorn's protocol; it tells `Connections` when a connection opens and closes."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**{**options, "app_state": {_STATE: self}})
        self._connections = connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._connections.opened(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._connections.lost(self)
        super().connection_lost(exc)
