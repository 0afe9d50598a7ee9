"""User names and passwords for registries; nothing is ever written to disk.

`EcrLogin` gets a token from ECR, `StoredLogin` reads what `docker login` has stored for another registry.
"""

import base64
import json
import logging
import re
import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from docker import auth
from docker.credentials.errors import StoreError
from docker.errors import DockerException
from docker.utils.config import find_config_file

from berth.common.errors import UserError
from berth.ecr.registry.challenge import Credentials
from berth.ecr.repositories.aws_errors import explain_aws_errors

MARGIN = timedelta(minutes=10)
"""A token is replaced so long before it expires, because a request may take that long. ECR's tokens last 12 hours; one
that arrives with less time left than this is used until it is refused.
"""


def _without_token(record: logging.LogRecord) -> bool:
    """Drops the log record with the token: at debug level botocore logs the whole answer."""
    return "authorizationToken" not in record.getMessage()


logging.getLogger("botocore.parsers").addFilter(_without_token)


def _now() -> datetime:
    return datetime.now(UTC)


class EcrLogin:
    """A `Login` to ECR's registries in a region, with GetAuthorizationToken of `client`; threads may share it."""

    def __init__(self, client: Any, now: Callable[[], datetime] = _now) -> None:
        self._client = client
        self._now = now
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None
        self._expires_at = datetime.min.replace(tzinfo=UTC)
        self._registry = ""

    @property
    def account(self) -> str:
        """The account of the credentials, from the registry's address that comes with the token.

        Not from STS, which can't be reached from a private subnet that only has ECR's endpoints.
        """
        self(renew=False)
        found = re.match(r"https://(\d{12})\.", self._registry)
        if not found:
            raise UserError(
                "the answer of ECR does not name the registry of its token: give --account, or check "
                "AWS_ENDPOINT_URL_ECR."
            )
        return found[1]

    def __call__(self, *, renew: bool) -> Credentials:
        """The cached token, or a new one if it expires soon or was refused."""
        with self._lock:
            if self._credentials is None or renew or self._now() >= self._expires_at - MARGIN:
                self._credentials, self._expires_at, self._registry = self._fetch()
                if self._now() >= self._expires_at - MARGIN:
                    # A new token that seems expired: the clocks differ. Use it until it is refused.
                    self._expires_at = datetime.max.replace(tzinfo=UTC)
            return self._credentials

    def _fetch(self) -> tuple[Credentials, datetime, str]:
        with explain_aws_errors("ecr:GetAuthorizationToken"):
            answer = self._client.get_authorization_token()
        try:
            (data,) = answer["authorizationData"]
            username, _, password = base64.b64decode(data["authorizationToken"], validate=True).decode().partition(":")
            if not password:
                raise ValueError
            end = data["expiresAt"].astimezone(UTC)
            return Credentials(username, password), end, str(data.get("proxyEndpoint", ""))
        except (KeyError, ValueError, TypeError):
            raise UserError("the answer of ECR has no valid token: check AWS_ENDPOINT_URL_ECR.") from None


def _docker_config(again: str) -> auth.AuthConfig:
    """Docker's own configuration; UserError, without any of its content, if it can't be parsed."""
    file = str(find_config_file() or "")
    try:
        # Read here, because docker-py ignores a file that it can't read. Docker accepts an empty file.
        text = Path(file).read_text(encoding="utf-8") if file else ""
        config = auth.load_config(config_dict=json.loads(text) if text.strip() else None)
        if not isinstance(config.cred_helpers, dict):
            raise TypeError
    except (DockerException, OSError, ValueError, TypeError, AttributeError):
        raise UserError(f"the logins in {file} can't be read: fix that file, or move it away and {again}") from None
    return config


class StoredLogin:
    """A `Login` to the registry `host[:port]`, from Docker's configuration and its credential helpers."""

    def __init__(self, host: str) -> None:
        self._host = host

    def __call__(self, *, renew: bool) -> Credentials | None:
        """The stored credentials, None if there are none. Read each time, because the user may log in meanwhile."""
        again = f"run `docker login {self._host}` and then this command again."
        config = _docker_config(again)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # docker-py warns of a missing helper; the error below names it
                found = config.resolve_authconfig(self._host)
        except (DockerException, StoreError, OSError, ValueError, KeyError, TypeError):
            # Without the helper's output, which may contain the password.
            helper = f"docker-credential-{config.get_credential_store(self._host)}"
            raise UserError(
                f"{helper} does not return the login to {self._host}: check that it works, or {again}"
            ) from None
        if not found:
            return None
        stored = {name.lower(): value for name, value in found.items()}
        if stored.get("identitytoken"):
            raise UserError(
                f"Docker has an identity token for {self._host}, which only Docker can use: with user name and "
                f"password, {again}"
            )
        if not stored.get("username"):
            return None
        return Credentials(str(stored["username"]), str(stored.get("password") or ""))
