"""Log-in to a registry: reads its challenge, and makes the Authorization headers, Basic or Bearer.

ECR and small registries use Basic. Others name a token server, which returns a token for scopes (repository and
actions) to a user who logs in to it: distribution's "Token Authentication Specification". All of it stays in memory.
"""

import base64
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from requests.utils import parse_dict_header

from berth.common.errors import UserError
from berth.common.http import without_password
from berth.ecr.registry.errors import RegistryAnswer


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password for one registry. The repr omits the password, to keep it out of logs and tracebacks."""

    username: str
    password: str = field(repr=False)


class Login(Protocol):
    """Returns credentials, None if there are none.

    renew: the previous credentials were refused; get new ones even if the old ones have not expired.
    """

    def __call__(self, *, renew: bool) -> Credentials | None: ...


Scopes = tuple[str, ...]
"""The permissions of a request, in the syntax of token servers: `repository:NAME:pull,push`."""
Ask = Callable[[str, str | None], RegistryAnswer]
"""`ask(url, authorization)`: a GET to the token server."""


def scopes_of(repository: str, actions: str = "pull") -> Scopes:
    """The scopes for these actions: `pull`, `pull,push` or `delete,pull,push`."""
    return (f"repository:{repository}:{actions}",)


def parse(header: str) -> tuple[str, dict[str, str]]:
    """The scheme of a WWW-Authenticate header, in lower case, and its parameters; empty for no header."""
    scheme, _, rest = header.strip().partition(" ")
    found = parse_dict_header(rest) if rest else {}  # type: ignore[no-untyped-call]
    return scheme.lower(), {key.lower(): value or "" for key, value in found.items()}


def basic(credentials: Credentials) -> str:
    """An Authorization header of the scheme Basic."""
    pair = f"{credentials.username}:{credentials.password}".encode()
    return "Basic " + base64.b64encode(pair).decode()


class Authenticator:
    """The Authorization headers for one registry: made at its first challenge, and renewed when it refuses one.

    Threads may share it: if the header of several is refused at the same time, only one renews it.
    """

    def __init__(self, host: str, login: Login, ask: Ask, may_see_login: Callable[[str], bool]) -> None:
        self._host = host
        self._login = login
        self._ask = ask
        self._may_see_login = may_see_login
        self._lock = threading.RLock()
        self._known: Credentials | None = None
        self._login_called = False
        self._basic: str | None = None
        self._tokens: dict[Scopes, str] = {}

    def header(self, scopes: Scopes) -> str | None:
        """The header to send; None before the first challenge."""
        return self._basic or self._tokens.get(scopes)

    def authenticate(self, challenge: str, scopes: Scopes, refused: str | None) -> None:
        """Makes the header for this WWW-Authenticate challenge, after the registry refused the header `refused`."""
        with self._lock:
            if self.header(scopes) != refused:
                return  # another thread has renewed it
            scheme, parameters = parse(challenge)
            if scheme == "basic":
                self._basic = basic(self._credentials(renew=refused is not None) or self._raise_no_login())
            elif scheme == "bearer":
                self._tokens[scopes] = "Bearer " + self._token(parameters, scopes)
            else:
                raise UserError(
                    f"{self._host} asks for a login with the scheme {scheme[:40] or '(none)'}, but only Basic and "
                    "Bearer are supported: check how the registry authenticates."
                )

    def _credentials(self, *, renew: bool) -> Credentials | None:
        if renew or not self._login_called:
            self._known = self._login(renew=renew)
            self._login_called = True
        return self._known

    def _raise_no_login(self) -> Credentials:
        raise UserError(f"{self._host} asks for a user name and a password: log in with `docker login {self._host}`.")

    def _token(self, parameters: dict[str, str], scopes: Scopes) -> str:
        """A token for these scopes. Credentials go only to the token server, and are renewed once."""
        realm = parameters.get("realm", "")
        if not self._may_see_login(realm):
            raise UserError(
                f"{self._host} sends its users to the token server {without_password(realm)[:120] or 'without address'}"
                ", which is not an https address: ask its operator to fix that."
            )
        server = urlsplit(realm)
        # Prefer the scopes in the challenge; a mount needs a second repository, which some registries don't name.
        wanted = parameters.get("scope", "").split()
        named = {scope.rpartition(":")[0] for scope in wanted}
        wanted += [scope for scope in scopes if scope.rpartition(":")[0] not in named]
        query = [("service", parameters.get("service", "")), *(("scope", scope) for scope in wanted)]
        url = f"{realm}{'&' if server.query else '?'}{urlencode([pair for pair in query if pair[1]])}"
        known = self._credentials(renew=False)
        answer = self._ask(url, basic(known) if known else None)
        if answer.status == 401 and known:
            known = self._credentials(renew=True)
            answer = self._ask(url, basic(known) if known else None)
        if answer.status == 401 and not known:
            self._raise_no_login()
        if answer.status != 200:
            raise UserError(
                f"the token server {server.netloc.rpartition('@')[2]} of {self._host} returns no token "
                f"({answer.message}): log in with an account that may use this repository."
            )
        try:
            found = json.loads(answer.body)
        except ValueError:
            found = None
        token = (found.get("token") or found.get("access_token")) if isinstance(found, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise UserError(
                f"the token server {server.netloc.rpartition('@')[2]} of {self._host} answers without a token: check "
                "its address in the registry's configuration."
            )
        return token
