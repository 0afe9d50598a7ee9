"""One client's connection: how long the server waits for it, and which one gives way when there are too many.

uvicorn leaves both to the proxy before it. An endpoint's container has one, but batch transform and local mode reach
the port directly, and a proxy passes on what its client does. A connection waits for its client (for a header, a body,
the next request, or until it has taken an answer), or its client waits for an answer. Connections that wait for their
clients do so for a limited time. If there are too many connections, the one that has waited longest is closed, so that
/ping always gets in.
"""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

WAITS = 75
"""Seconds for a client: longer than the idle time of usual proxies, so that the server never closes first."""
_STATE = "connection"
"""Where the state of a request has its connection."""


class Connections:
    """The connections of one server, as an ASGI application around `app`, which tells whose request is answered."""

    def __init__(self, app: ASGIApp, most: int, seconds: float = WAITS) -> None:
        self._app = app
        self._most = most
        self._seconds = seconds
        self._open: dict[ClientConnection, asyncio.Transport] = {}
        self._waiting: dict[ClientConnection, asyncio.TimerHandle] = {}  # longest first

    def connect(self, **options: Any) -> "ClientConnection":
        """uvicorn's setting `http`: what makes the protocol of a new connection."""
        return ClientConnection(self, **options)

    def opened(self, connection: "ClientConnection", transport: asyncio.Transport) -> None:
        """A client has connected."""
        self._open[connection] = transport
        self._wait(connection)
        if len(self._open) > self._most:
            self._close(next(iter(self._waiting)))

    def lost(self, connection: "ClientConnection") -> None:
        """It is gone, whoever ended it."""
        del self._open[connection]
        self._stop_waiting(connection)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["state"][_STATE]
        self._wait(connection)

        async def receiving() -> Message:
            message = await receive()
            if not message.get("more_body"):
                self._stop_waiting(connection)
            return message

        if scope["method"] != "POST":  # whose body nobody reads
            self._stop_waiting(connection)
        try:
            await self._app(scope, receiving, send)
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
        """Hang up, whatever of an answer has not been taken."""
        self._stop_waiting(connection)
        self._open[connection].abort()


class ClientConnection(H11Protocol):
    """uvicorn's protocol, whose beginning and end `Connections` hears of."""

    def __init__(self, known: Connections, **options: Any) -> None:
        super().__init__(**{**options, "app_state": {_STATE: self}})
        self._known = known

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._known.opened(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._known.lost(self)
        super().connection_lost(exc)
