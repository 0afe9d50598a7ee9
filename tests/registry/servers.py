"""A token server for tests of registries."""

import base64
import json
import time
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from tests.doubles.http_server import QuietHandler


class FakeTokenServer(QuietHandler):
    """A token server like Docker Hub's, which the distribution registry lacks: signs tokens for the requested scopes.

    Without credentials the token allows only pulls.
    """

    key: ClassVar[rsa.RSAPrivateKey]
    chain: ClassVar[list[str]]
    queries: ClassVar[list[dict[str, list[str]]]]
    expected = ""
    lifetime_s = 300

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.queries.append(query)
        authorization = self.headers.get("Authorization")
        if authorization not in (None, self.expected):
            self.send_error(401)
            return
        access = []
        for scope in query.get("scope", []):
            kind, name, actions = scope.split(":")
            allowed = actions.split(",") if authorization else ["pull"]
            access.append({"type": kind, "name": name, "actions": allowed})
        now = int(time.time())
        claims = {"iss": "berth", "sub": "", "aud": query["service"][0], "nbf": now - 60, "iat": now, "jti": "1"}
        token = self._signed({**claims, "exp": now + self.lifetime_s, "access": access})
        self.answer(200, json.dumps({"token": token}).encode())

    def _signed(self, claims: dict[str, Any]) -> str:
        header = {"typ": "JWT", "alg": "RS256", "x5c": self.chain}
        text = ".".join(_base64url(json.dumps(each).encode()) for each in (header, claims))
        return f"{text}.{_base64url(self.key.sign(text.encode(), PKCS1v15(), hashes.SHA256()))}"


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
