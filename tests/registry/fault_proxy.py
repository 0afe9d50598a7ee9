"""A reverse proxy in front of a real registry that counts uploaded bytes and simulates faults: answers 429 and 5xx,
dropped connections, expiring tokens, immutable tags.

HTTP/1.1 with keep-alive, chunked bodies, `Expect: 100-continue`, HEAD and TLS; bodies are streamed. A test scripts it:

    proxy = FaultProxy(registry.url, ca=registry.ca)
    proxy.answer(429, method="PATCH", skip=1, headers={"Retry-After": "2"})    # the second PATCH
    proxy.drop(after=3_000_000)                                               # in the middle of an upload
    proxy.expire(after=10_000_000)                                            # the token in use is refused from then on
    ... proxy.uploaded(), proxy.requests ...
"""

import base64
import http.client
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from berth.ecr.registry.challenge import Credentials
from tests.doubles.http_server import QuietHandler

_PIECE = 1 << 16
_UPLOADS = r"/v2/.+/blobs/uploads/"
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"}


@dataclass
class Request:
    """A request. received: bytes of its body; status: of the answer, 0 without an answer."""

    method: str
    path: str
    authorization: str = field(default="", repr=False)
    received: int = 0
    status: int = 0


@dataclass
class Fault:
    """A fault for requests that match: not for the first `skip`, then for `times` of them.

    status 0 drops the connection after `after` bytes of the body, or instead of the answer if `after` is None.
    """

    method: str
    path: str
    skip: int
    times: int
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: int | None = None
    matches: int = 0

    def strikes(self, method: str, path: str) -> bool:
        """Whether the fault applies to this request; counts the request."""
        if not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        self.matches += 1
        return self.skip < self.matches <= self.skip + self.times


class FaultProxy(ThreadingHTTPServer):
    """Listens on a loopback port of its own; `upstream` is the registry's URL.

    ca: the CA of an upstream with TLS; certificate and key make the proxy itself speak TLS. credentials: sent to the
    upstream instead of the client's, so that the client can use any token.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        upstream: str,
        *,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        credentials: Credentials | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__((address, port), _Handler)
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.authorization = _basic(credentials) if credentials else None
        self.refused: set[str] = set()
        self._faults: list[Fault] = []
        self._expires_after: int | None = None
        self.upstream = urlsplit(upstream)
        self._context = ssl.create_default_context(cafile=ca) if self.upstream.scheme == "https" else None
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            # The handshake runs in the connection's thread, so a client without one does not block others.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        """Ignores clients that go away: tests do that."""

    def answer(
        self,
        status: int,
        *,
        method: str = ".*",
        path: str = "",
        skip: int = 0,
        times: int = 1,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Answers matching requests after reading their bodies. method: matched as a whole; path: searched."""
        self._add(Fault(method, path, skip, times, status, headers or {}, body))

    def drop(
        self, *, after: int | None, method: str = "PATCH|PUT", path: str = _UPLOADS, skip: int = 0, times: int = 1
    ) -> None:
        """Breaks both connections after so many bytes of a request's body; None: instead of the answer."""
        self._add(Fault(method, path, skip, times, after=after))

    def expire(self, after: int) -> None:
        """Refuses the current Authorization with 401 as soon as so many bytes have been uploaded."""
        with self.lock:
            self._expires_after = after

    def refuse(self, credentials: Credentials) -> None:
        """Refuses these credentials from now on."""
        with self.lock:
            self.refused.add(_basic(credentials))

    def uploaded(self, method: str = ".*", path: str = _UPLOADS) -> int:
        """Received bytes of the bodies of matching requests, dropped ones included."""
        with self.lock:
            return sum(each.received for each in self._matching(method, path))

    def count(self, method: str = ".*", path: str = "") -> int:
        """How many requests matched."""
        with self.lock:
            return len(self._matching(method, path))

    def forget(self) -> None:
        """Clears faults, counts and refusals."""
        with self.lock:
            self.requests.clear()
            self._faults.clear()
            self.refused.clear()
            self._expires_after = None

    def _matching(self, method: str, path: str) -> list[Request]:
        return [each for each in self.requests if re.fullmatch(method, each.method) and re.search(path, each.path)]

    def _add(self, fault: Fault) -> None:
        with self.lock:
            self._faults.append(fault)

    # The handler calls these methods in a connection's thread.

    def begin(self, request: Request) -> Fault | None:
        """Records a request; returns the fault that applies to it."""
        with self.lock:
            self.requests.append(request)
            if request.authorization and request.authorization in self.refused:
                return Fault(".*", "", 0, 1, 401, {"WWW-Authenticate": 'Basic realm="fault proxy"'})
            # Every fault counts every matching request, even if another fault applies.
            struck = [fault for fault in self._faults if fault.strikes(request.method, request.path)]
            return struck[0] if struck else None

    def receive(self, request: Request, size: int) -> None:
        with self.lock:
            request.received += size
            if self._expires_after is None or not request.authorization:
                return
            if sum(each.received for each in self._matching(".*", _UPLOADS)) >= self._expires_after:
                self.refused.add(request.authorization)
                self._expires_after = None

    def connect(self) -> http.client.HTTPConnection:
        host, port = self.upstream.hostname or "", self.upstream.port
        if self._context:
            return http.client.HTTPSConnection(host, port, context=self._context, timeout=300)
        return http.client.HTTPConnection(host, port, timeout=300)

    def location(self, value: str, host: str) -> str:
        """Rewrites an absolute address, which can only be the upstream's, to the proxy's."""
        parts = urlsplit(value)
        return parts._replace(scheme=self.scheme, netloc=host).geturl() if parts.netloc else value


def _basic(credentials: Credentials) -> str:
    return "Basic " + base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()


class _BrokenConnectionError(Exception):
    """The connection must be broken, or the client or the upstream has broken it."""


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: FaultProxy
    timeout = 300
    # Otherwise an answer's body would wait 40 ms for the acknowledgement of its headers.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        request = Request(self.command, self.path, self.headers.get("Authorization", ""))
        fault = self.server.begin(request)
        try:
            if fault is not None and fault.status:
                for _ in self._body(request, None):
                    pass
                request.status = fault.status
                self.answer(fault.status, fault.body, fault.headers)
            else:
                self._forward(request, fault)
        except (_BrokenConnectionError, OSError, http.client.HTTPException):
            self._break()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _forward(self, request: Request, fault: Fault | None) -> None:
        """Streams the request up and the answer down."""
        proxy = self.server
        upstream = proxy.connect()
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP | {"host", "authorization", "expect"}:
                    upstream.putheader(name, value)
            upstream.putheader("Host", proxy.upstream.netloc)
            authorization = proxy.authorization or request.authorization
            if authorization and request.authorization:
                upstream.putheader("Authorization", authorization)
            chunked = self._chunked
            if chunked:
                upstream.putheader("Transfer-Encoding", "chunked")
            upstream.endheaders()
            for piece in self._body(request, fault.after if fault else None):
                upstream.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                upstream.send(b"0\r\n\r\n")
            answer = upstream.getresponse()
            if fault is not None:
                answer.read()
                raise _BrokenConnectionError
            self._stream(request, answer)
        finally:
            upstream.close()

    @property
    def _chunked(self) -> bool:
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    def _body(self, request: Request, drop_after: int | None) -> Iterator[bytes]:
        """The body's pieces, counted; _BrokenConnectionError after so many bytes."""
        for piece in self._chunks() if self._chunked else self._sized(int(self.headers.get("Content-Length", 0))):
            if drop_after is not None and request.received + len(piece) > drop_after:
                kept = piece[: drop_after - request.received]
                self.server.receive(request, len(kept))
                if kept:
                    yield kept
                raise _BrokenConnectionError
            self.server.receive(request, len(piece))
            yield piece
        if drop_after is not None:
            raise _BrokenConnectionError  # a shorter body: break the connection at its end

    def _sized(self, left: int) -> Iterator[bytes]:
        while left:
            piece = self.rfile.read1(min(left, _PIECE))
            if not piece:
                raise _BrokenConnectionError
            left -= len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(1024).split(b";")[0], 16):
            yield from self._sized(size)
            self.rfile.readline(1024)
        self.rfile.readline(1024)

    def _stream(self, request: Request, answer: http.client.HTTPResponse) -> None:
        request.status = answer.status
        self.send_response_only(answer.status, answer.reason)
        chunked = answer.getheader("Content-Length") is None and answer.status not in (204, 304)
        chunked = chunked and self.command != "HEAD"
        for name, value in answer.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                moved = name.lower() == "location"
                self.send_header(name, self.server.location(value, self.headers["Host"]) if moved else value)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(_PIECE):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _break(self) -> None:
        """Resets the connection, like a network that fails."""
        self.close_connection = True
        linger = struct.pack("ii", 1, 0)
        try:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
        except OSError:
            pass
