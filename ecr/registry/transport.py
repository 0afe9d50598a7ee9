"""Requests to one registry: which scheme, whose certificate is trusted, who asks, and when to try again.

`Transport.once` is one request and its answer, with a login where the registry asks for one; what may go better at the
next try is raised as `RetryableError`, and `Transport.with_retries` does something until it goes well or the pauses are
used up.
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
"""Seconds before each next try, where a registry does not say itself how long to wait."""
LONGEST_WAIT_S = 120.0
"""A registry that wants a longer wait than this is left for today."""
LARGEST_ANSWER = 64 << 20
"""Bytes of an answer that is kept in memory: manifests have up to 4 MiB, documents a few more."""
_CONNECT_S, _READ_S, _WRITE_S = 10, 60, 300  # to the end of a write a registry may copy and hash gigabytes
# Of a host that has not answered yet. On loopback one that never does takes both: _CONNECT_S for the handshake of TLS,
# and this for the question by HTTP.
_FIRST_READ_S = 10
_PIECE = 1 << 20
_T = TypeVar("_T")


@dataclass(frozen=True)
class RegistryRequest:
    """What a registry is asked.

    path: below the host, or a whole URL, where a registry gave one; action: what it is for, for sentences; scopes: the
    permissions that it takes; sending: told the bytes of `body` each time they go out.
    """

    method: str
    path: str
    action: str
    repository: str = ""
    scopes: Scopes = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    sending: Callable[[int], None] = lambda _: None


class RetryableError(Exception):
    """No answer, half of one, or one that asks for another try; `after` seconds, where the registry said so.

    sentence: what the user reads when there is no further try.
    """

    def __init__(self, sentence: str, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.sentence = sentence
        self.reason = reason
        self.after = after


class _NoTls(Exception):
    """What answers does not speak TLS, or nothing answers."""

    def __init__(self, reason: str, *, silent: bool) -> None:
        super().__init__(reason)
        self.silent = silent


class Transport:
    """One registry at `host`, as HOST or HOST:PORT; several threads may use it.

    HTTPS; on loopback addresses, and with `plain_http`, plain HTTP if that is what answers. Trusted are the
    environment's CA bundle, as requests takes it, and the CAs that the engine trusts for this host, in the folder
    `certificates`. say: told of each wait; sleep: waits.
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
        self._base = ""  # once it has answered
        self._authenticator = Authenticator(host, login, self._ask_token_server, self._may_see_login)
        # Shared by threads: its pool is made for that, and its cookie jar has a lock.
        self._session = RegistrySession()
        # As the engine does: where the registry sends on to, a token server or a store, its CAs are trusted as well.
        self._session.mount("https://", trust.Adapter(self._certificates))
        # As the engine does: nobody's proxy is asked for a loopback address.
        none = ",".join(filter(None, (name, os.environ.get("no_proxy") or os.environ.get("NO_PROXY"))))
        self._proxies = {"no_proxy": none} if self._loopback else {}

    def base(self) -> str:
        """`https://HOST`, or `http://HOST` on loopback; UserError where no registry answers there.

        Threads that want it at the same time wait for one answer: a host that says nothing is waited for once.
        """
        with self._lock:
            probing = self._probing = self._probing or BackgroundTask(self._probe)
        try:
            self._base = probing.result()
        except UserError:
            with self._lock:
                if self._probing is probing:
                    self._probing = None  # whoever asks after this may find it running
            raise
        return self._base

    def with_retries(self, act: Callable[[], _T]) -> _T:
        """Does it, again after a pause each time it is dropped; UserError when the pauses are used up."""
        failures = 0
        while True:
            try:
                return act()
            except RetryableError as dropped:
                self.wait(dropped, failures)
                failures += 1

    def wait(self, dropped: RetryableError, failures: int) -> None:
        """The pause after so many failures in a row before this one; UserError where there is no further try."""
        if failures >= len(PAUSES_S):
            raise UserError(dropped.sentence) from None
        seconds = PAUSES_S[failures] if dropped.after is None else dropped.after
        if seconds > LONGEST_WAIT_S:
            raise UserError(
                f"{self.host} asks to be left alone for {seconds:.0f} s ({dropped.reason}): run this again after that, "
                "what arrived is not sent again."
            ) from None
        self.say(f"{self.host}: {dropped.reason}; trying again in {round(seconds, 1):g} s")
        self._sleep(seconds)

    def send(self, request: RegistryRequest) -> RegistryAnswer:
        """`once`, with retries."""
        return self.with_retries(lambda: self.once(request))

    def once(self, request: RegistryRequest) -> RegistryAnswer:
        """One request and its whole answer, whatever its status is; RetryableError for those that ask for another try.

        UserError for what no other try fixes: trust, login, a name that is no host's.
        """
        with self.stream(request) as (answer, pieces):
            return self._whole(answer, pieces, request.action)

    @contextmanager
    def stream(self, request: RegistryRequest) -> Iterator[tuple[RegistryAnswer, Iterator[bytes]]]:
        """The same with the body's pieces still to come; a login that is refused is renewed once."""
        url = self.absolute(request.path)
        own = origin(url) == origin(self.base())  # to no other host goes a login
        renewed = False
        while True:
            authorization = self._authenticator.header(request.scopes) if own else None
            if request.body:
                request.sending(len(request.body))
            with self._exchange(request, url, authorization) as (answer, pieces):
                # What a redirect led to asks for nothing of ours either.
                if answer.status != 401 or renewed or not own or origin(answer.url) != origin(url):
                    if answer.status >= 400:
                        answer = self._whole(answer, pieces, request.action)
                        self._raise_if_retryable(answer, request)
                        pieces = iter((answer.body,))
                    yield answer, pieces
                    return
                self._whole(answer, pieces, request.action)  # read to its end, the connection serves again
            renewed = authorization is not None
            challenge = answer.headers.get("WWW-Authenticate", "")
            self._authenticator.authenticate(challenge, request.scopes, authorization)

    def absolute(self, path: str) -> str:
        """A URL of a path, or of a Location that the registry gave; UserError where that leaves TLS."""
        try:
            url = urljoin(self.base(), path)
            origin(url)
        except ValueError:
            raise UserError(
                f"{self.host} sends on to {without_password(path)[:120]}, which is no address: have its configuration "
                "fixed."
            ) from None
        stay_in_tls(self.base(), url)
        return url

    def _probe(self) -> str:
        """Which scheme answers as a registry, by the specification's `GET /v2/`."""
        bases = [f"{scheme}://{self.host}" for scheme in (("https", "http") if self._plain_http else ("https",))]
        for base in bases:
            try:
                answer = self.with_retries(lambda base=base: self._ping(base))  # type: ignore[misc]
            except _NoTls as failure:
                if base != bases[-1]:
                    continue
                if failure.silent:
                    raise UserError(_unreached(self.host, str(failure), begun=False)) from None
                raise UserError(
                    f"{self.host} answers no HTTPS ({failure}), and plain HTTP is for loopback addresses only, or for "
                    "a push if the engine's insecure-registries name it: give the registry a certificate, or fix its "
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
            # A host that has never answered is more often misspelt than busy.
            raise _NoTls(dropped.reason, silent=True) from None
        self._raise_if_retryable(answer, request)
        return answer

    def _may_see_login(self, url: str) -> bool:
        """Whether a login may go to this URL of a token server: by TLS, or to this machine if the registry is here."""
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
        """One request, without a login of its own; every fault of the connection is explained here."""
        try:
            with self._session.request(
                request.method,
                url,
                data=request.body,
                # As it lies there: a proxy that calls a layer compressed content would have it unpacked on the way.
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
        """What a fault of the connection means: UserError, RetryableError, or _NoTls before anything has answered."""
        cause = innermost(error)
        reason = in_few_words(cause)
        # A token server's or, after a redirect, another host's.
        asked = getattr(getattr(error, "request", None), "url", None) or url
        host = urlsplit(asked).netloc.rpartition("@")[2]
        if isinstance(cause, ssl.SSLCertVerificationError):
            return UserError(trust.untrusted(host, self._certificates, cause))
        if isinstance(cause, ssl.SSLError) and not self._base:
            return _NoTls(reason, silent=False)
        if isinstance(error, ProxyError):
            proxy = (
                f"the proxy of the environment does not let {host} be reached ({reason}): look at HTTPS_PROXY, or "
                "put the host into NO_PROXY."
            )
            return RetryableError(proxy, reason) if self._base else UserError(proxy)
        if isinstance(error, TooManyRedirects):
            return UserError(f"{self.host} sends {action} on without an end: have its configuration fixed.")
        if isinstance(error, ValueError) or not isinstance(error, RequestException | HTTPError | ConnectionError):
            # A URL that is none, a CA bundle of the environment that is not there.
            return UserError(
                f"{host} can't be asked ({reason}): fix the registry's name, or the CA bundle that "
                "REQUESTS_CA_BUNDLE names."
            )
        return RetryableError(_unreached(host, reason, begun=bool(self._base)), reason)

    def _raise_if_retryable(self, answer: RegistryAnswer, request: RegistryRequest) -> None:
        if answer.retryable:
            explanation = sentence(self.host, request.repository, request.action, answer)
            raise RetryableError(explanation, answer.message, _retry_after(answer.headers))

    def _whole(self, answer: RegistryAnswer, pieces: Iterator[bytes], action: str) -> RegistryAnswer:
        """The answer with its body, kept in memory; UserError before that gets too large."""
        body = bytearray()
        try:
            for piece in pieces:
                body += piece
                if len(body) > LARGEST_ANSWER:
                    raise UserError(
                        f"{self.host} answers {action} with more than {LARGEST_ANSWER >> 20} MiB, which no manifest or "
                        "document has: see what is stored there."
                    )
        except HTTPError:
            # The distribution registry announces the whole blob with its 416; half an error is one as well.
            if answer.status < 400:
                raise
        return replace(answer, body=bytes(body))


def timeouts_s(method: str, *, known: bool) -> tuple[float, float]:
    """Seconds for the connection, its TLS included, and for each silence after it; known: the host has answered once.

    A host that has never answered is more often misspelt than slow, and a user waits for that sentence.
    """
    if not known:
        return _CONNECT_S, _FIRST_READ_S
    return _CONNECT_S, _WRITE_S if method in ("PUT", "PATCH") else _READ_S


def _unreached(host: str, reason: str, *, begun: bool) -> str:
    """begun: whether the registry has answered before, so that something may have arrived there."""
    return (
        f"{host} can't be reached ({reason}): see that the name and the port are right and that the registry runs, "
        f"then run this again{'; what arrived is not sent again' * begun}."
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, which gives them or a date; None without one that can be read."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d+)?", text):
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    # A date without a zone is in UTC, RFC 5322's "-0000".
    return max(0.0, ((until if until.tzinfo else until.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())
