"""Requests to one registry: scheme, certificates, log-in, proxies and retries.

`Transport.once` sends one request and returns its answer, and logs in if the registry asks for it. It raises
`RetryableError` if a retry may succeed; `Transport.with_retries` retries until the pauses are used up.
"""

import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin, urlsplit

from requests.exceptions import ProxyError, RequestException, TooManyRedirects
from urllib3.exceptions import HTTPError

from berth.common.concurrency import BackgroundTask
from berth.common.errors import UserError
from berth.common.http import in_few_words, innermost, without_password
from berth.ecr.registry import trust
from berth.ecr.registry.addresses import hostname, is_loopback, origin
from berth.ecr.registry.challenge import Authenticator, Login, Scopes
from berth.ecr.registry.errors import RegistryAnswer, sentence
from berth.ecr.registry.session import Authorization, RegistrySession, stay_in_tls

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each retry, unless the registry sends Retry-After."""
LONGEST_WAIT_S = 120.0
"""If a registry asks for a longer wait than this, the command gives up."""
LARGEST_ANSWER = 64 << 20
"""Largest answer in bytes that is read into memory: manifests have up to 4 MiB, documents a few more."""
_CONNECT_S, _READ_S, _WRITE_S = 10, 60, 300  # at the end of a write a registry may copy and hash gigabytes
# For a host that has not answered yet. A silent host on loopback takes both: _CONNECT_S for the TLS handshake, then
# this for plain HTTP.
_FIRST_READ_S = 10
_PIECE = 1 << 20
_T = TypeVar("_T")


@dataclass(frozen=True)
class RegistryRequest:
    """A request to a registry.

    path: below the host, or a URL that the registry gave; action: its purpose, for errors; scopes: the permissions that
    it needs.
    """

    method: str
    path: str
    action: str
    repository: str = ""
    scopes: Scopes = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


class RetryableError(Exception):
    """No answer, an incomplete one, or one after which a retry may succeed.

    sentence: the error for the user if there is no further retry; after: seconds to wait, if the registry gave them.
    """

    def __init__(self, sentence: str, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.sentence = sentence
        self.reason = reason
        self.after = after


class _NoTls(Exception):
    """The host does not speak TLS, or (silent) does not answer."""

    def __init__(self, reason: str, *, silent: bool) -> None:
        super().__init__(reason)
        self.silent = silent


class Transport:
    """The registry at `host`, HOST or HOST:PORT; threads may share it.

    It uses HTTPS; on loopback, and with `plain_http`, plain HTTP if HTTPS gets no answer. It trusts the
    environment's CA bundle, like requests, and the CAs that the engine trusts for this host, in the folder
    `certificates`. say: prints a line before each wait; sleep: waits.
    """

    def __init__(
        self,
        host: str,
        login: Login,
        *,
        certificates: Path = trust.CERTIFICATES,
        say: Callable[[str], None] = lambda _: None,
        sleep: Callable[[float], object] = time.sleep,
        plain_http: bool = False,
    ) -> None:
        self.host = host
        self.say = say
        name = hostname(host)
        self._loopback = is_loopback(name)
        self._plain_http = plain_http or self._loopback
        self._certificates = certificates / host
        self._sleep = sleep
        self._lock = threading.Lock()
        self._probing: BackgroundTask[str] | None = None
        self._base = ""  # empty until the host has answered
        self._authenticator = Authenticator(host, login, self._ask_token_server, self._may_see_login)
        # Threads may share a session: its connection pool allows that, and its cookie jar has a lock.
        self._session = RegistrySession()
        # Like the engine: the registry's CAs are also trusted for its token server and its storage.
        self._session.mount("https://", trust.Adapter(self._certificates))
        # Like the engine: no proxy for a loopback address.
        no_proxy = ",".join(filter(None, (name, os.environ.get("no_proxy") or os.environ.get("NO_PROXY"))))
        self._proxies = {"no_proxy": no_proxy} if self._loopback else {}

    def base(self) -> str:
        """`https://HOST` or `http://HOST`; UserError if no registry answers there.

        The first call sends a request; threads that call it meanwhile wait for the same answer.
        """
        with self._lock:
            probing = self._probing = self._probing or BackgroundTask(self._probe)
        try:
            self._base = probing.result()
        except UserError:
            with self._lock:
                if self._probing is probing:
                    self._probing = None  # the next call tries again
            raise
        return self._base

    def with_retries(self, act: Callable[[], _T]) -> _T:
        """Calls `act`, again after a pause for each RetryableError; UserError when the pauses are used up."""
        failures = 0
        while True:
            try:
                return act()
            except RetryableError as dropped:
                self.wait(dropped, failures)
                failures += 1

    def wait(self, dropped: RetryableError, failures: int) -> None:
        """Waits before a retry; failures: in a row before this one. UserError if there is no further retry."""
        if failures >= len(PAUSES_S):
            raise UserError(dropped.sentence) from None
        seconds = PAUSES_S[failures] if dropped.after is None else dropped.after
        if seconds > LONGEST_WAIT_S:
            raise UserError(
                f"{self.host} asks for a pause of {seconds:.0f} s ({dropped.reason}): run this again after that, "
                "complete layers are not sent again."
            ) from None
        self.say(f"{self.host}: {dropped.reason}; trying again in {round(seconds, 1):g} s")
        self._sleep(seconds)

    def send(self, request: RegistryRequest) -> RegistryAnswer:
        """`once`, with retries."""
        return self.with_retries(lambda: self.once(request))

    def once(self, request: RegistryRequest) -> RegistryAnswer:
        """Sends a request; returns its answer with any status. RetryableError if a retry may succeed, UserError if not
        (certificate, login, invalid host).
        """
        with self.stream(request) as (answer, pieces):
            return self._whole(answer, pieces, request.action)

    @contextmanager
    def stream(self, request: RegistryRequest) -> Iterator[tuple[RegistryAnswer, Iterator[bytes]]]:
        """Like `once`, with the body as pieces; a refused login is renewed once."""
        url = self.absolute(request.path)
        own = origin(url) == origin(self.base())  # other hosts get no login
        renewed = False
        while True:
            authorization = self._authenticator.header(request.scopes) if own else None
            with self._exchange(request, url, authorization) as (answer, pieces):
                # After a redirect to another host, a 401 is final, too.
                if answer.status != 401 or renewed or not own or origin(answer.url) != origin(url):
                    if answer.status >= 400:
                        answer = self._whole(answer, pieces, request.action)
                        self._raise_if_retryable(answer, request)
                        pieces = iter((answer.body,))
                    yield answer, pieces
                    return
                self._whole(answer, pieces, request.action)  # read to its end, so that the connection can be reused
            renewed = authorization is not None
            challenge = answer.headers.get("WWW-Authenticate", "")
            self._authenticator.authenticate(challenge, request.scopes, authorization)

    def absolute(self, path: str) -> str:
        """The URL of a path or of a Location header; UserError if it is invalid or leaves TLS."""
        try:
            url = urljoin(self.base(), path)
            origin(url)
        except ValueError:
            raise UserError(
                f"{self.host} redirects to {without_password(path)[:120]}, which is not a valid address: ask its "
                "operator to fix that."
            ) from None
        stay_in_tls(self.base(), url)
        return url

    def _probe(self) -> str:
        """The base URL with the scheme that answers as a registry, by the specification's `GET /v2/`."""
        bases = [f"{scheme}://{self.host}" for scheme in (("https", "http") if self._plain_http else ("https",))]
        for base in bases:
            try:
                answer = self.with_retries(lambda base=base: self._ping(base))  # type: ignore[misc]
            except _NoTls as failure:
                if base != bases[-1]:
                    continue
                if failure.silent:
                    raise UserError(_unreached(self.host, str(failure), answered_before=False)) from None
                raise UserError(
                    f"{self.host} does not speak HTTPS ({failure}), and plain HTTP is only used on loopback, and by a "
                    "push if the engine's insecure-registries name it: give the registry a certificate, or fix its "
                    "port."
                ) from None
            if answer.status in (200, 401) and not answer.is_page:
                return base
            if answer.status == 403:
                raise UserError(sentence(self.host, "", "any request", answer))
            break
        raise UserError(
            f"{self.host} answers, but not as a container registry ({answer.message}): fix its name or port."
        )

    def _ping(self, base: str) -> RegistryAnswer:
        request = RegistryRequest("GET", f"{base}/v2/", "the first request")
        try:
            with self._exchange(request, request.path, None) as (head, pieces):
                answer = self._whole(head, pieces, request.action)
        except RetryableError as dropped:
            # No retries: a host that has never answered is more often misspelt than busy.
            raise _NoTls(dropped.reason, silent=True) from None
        self._raise_if_retryable(answer, request)
        return answer

    def _may_see_login(self, url: str) -> bool:
        """Whether a token server at this URL may get the login: with TLS, or if both it and the registry are on this
        machine.
        """
        try:
            scheme, name, _ = origin(url)
        except ValueError:
            return False
        return bool(name) and (scheme == "https" or (scheme == "http" and self._loopback and is_loopback(name or "")))

    def _ask_token_server(self, url: str, authorization: str | None) -> RegistryAnswer:
        request = RegistryRequest("GET", url, "a token")

        def ask() -> RegistryAnswer:
            with self._exchange(request, url, authorization) as (head, pieces):
                answer = self._whole(head, pieces, request.action)
            self._raise_if_retryable(answer, request)
            return answer

        return self.with_retries(ask)

    @contextmanager
    def _exchange(
        self, request: RegistryRequest, url: str, authorization: str | None
    ) -> Iterator[tuple[RegistryAnswer, Iterator[bytes]]]:
        """Sends one request with the given Authorization header, and explains all errors of the connection."""
        try:
            with self._session.request(
                request.method,
                url,
                data=request.body,
                # `identity`: a proxy may declare a gzip layer as Content-Encoding, and requests would unpack it.
                headers={"Accept-Encoding": "identity", **request.headers},
                auth=Authorization(authorization),
                stream=True,
                timeout=timeouts_s(request.method, known=bool(self._base)),
                allow_redirects=request.method in ("GET", "HEAD"),
                proxies=self._proxies,
            ) as answer:
                yield (
                    RegistryAnswer(answer.status_code, answer.headers, url=answer.url),
                    answer.raw.stream(_PIECE, decode_content=False),
                )
        except (RequestException, HTTPError, OSError) as error:
            raise self._meaning(error, url, request.action) from None

    def _meaning(self, error: Exception, url: str, action: str) -> Exception:
        """The exception for a connection error: UserError, RetryableError, or _NoTls before the first answer."""
        cause = innermost(error)
        reason = in_few_words(cause)
        # After a redirect the URL is another host's.
        actual_url = getattr(getattr(error, "request", None), "url", None) or url
        host = urlsplit(actual_url).netloc.rpartition("@")[2]
        if isinstance(cause, ssl.SSLCertVerificationError):
            return UserError(trust.untrusted(host, self._certificates, cause))
        if isinstance(cause, ssl.SSLError) and not self._base:
            return _NoTls(reason, silent=False)
        if isinstance(error, ProxyError):
            proxy = (
                f"{host} can't be reached through the environment's proxy ({reason}): check HTTPS_PROXY, or add the "
                "host to NO_PROXY."
            )
            return RetryableError(proxy, reason) if self._base else UserError(proxy)
        if isinstance(error, TooManyRedirects):
            return UserError(f"{self.host} redirects {action} without an end: ask its operator to fix that.")
        if isinstance(error, ValueError) or not isinstance(error, RequestException | HTTPError | ConnectionError):
            # An invalid URL, or a CA bundle of the environment that does not exist.
            return UserError(
                f"the request to {host} is not possible ({reason}): fix the registry's name, or the CA bundle that "
                "REQUESTS_CA_BUNDLE names."
            )
        return RetryableError(_unreached(host, reason, answered_before=bool(self._base)), reason)

    def _raise_if_retryable(self, answer: RegistryAnswer, request: RegistryRequest) -> None:
        if answer.retryable:
            explanation = sentence(self.host, request.repository, request.action, answer)
            raise RetryableError(explanation, answer.message, _retry_after(answer.headers))

    def _whole(self, answer: RegistryAnswer, pieces: Iterator[bytes], action: str) -> RegistryAnswer:
        """The answer with its whole body; UserError if that is too large."""
        body = bytearray()
        try:
            for piece in pieces:
                body += piece
                if len(body) > LARGEST_ANSWER:
                    raise UserError(
                        f"{self.host} answers {action} with more than {LARGEST_ANSWER >> 20} MiB, too large for a "
                        "manifest or document: check what is stored there."
                    )
        except HTTPError:
            # With a 416 the distribution registry announces the whole blob's length; an incomplete error is enough.
            if answer.status < 400:
                raise
        return replace(answer, body=bytes(body))


def timeouts_s(method: str, *, known: bool) -> tuple[float, float]:
    """Time-outs in seconds, for connecting (with TLS) and for each read. known: the host has answered before.

    A host that has never answered gets less time, because it is more often misspelt than slow.
    """
    if not known:
        return _CONNECT_S, _FIRST_READ_S
    return _CONNECT_S, _WRITE_S if method in ("PUT", "PATCH") else _READ_S


def _unreached(host: str, reason: str, *, answered_before: bool) -> str:
    """answered_before: whether the registry has answered, and so may have received something."""
    return (
        f"{host} can't be reached ({reason}): check that the name and the port are right and that the registry runs, "
        f"then run this again{'; complete layers are not sent again' * answered_before}."
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds in a Retry-After header, which has seconds or a date; None without a valid one."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    # A date without a zone is in UTC, RFC 5322's "-0000".
    return max(0.0, ((until if until.tzinfo else until.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())
