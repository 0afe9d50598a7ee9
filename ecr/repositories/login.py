"""Where the name and the password for a registry come from; nothing is ever written.

`EcrLogin` asks ECR for its token, `StoredLogin` takes what `docker login` has stored for any other registry.
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
"""How long before its end a token is no longer given out: one request may last so long. ECR's last 12 hours; one that
comes with less left holds until it is refused.
"""


def _without_token(record: logging.LogRecord) -> bool:
    """Leaves out the answer with the token, which botocore logs as it came where somebody asks for its details."""
    return "authorizationToken" not in record.getMessage()


logging.getLogger("botocore.parsers").addFilter(_without_token)


def _now() -> datetime:
    return datetime.now(UTC)


class EcrLogin:
    """A `Login` to ECR's registries in a region, by GetAuthorizationToken of `client`; threads may share it."""

    def __init__(self, client: Any, now: Callable[[], datetime] = _now) -> None:
        self._client = client
        self._now = now
        self._lock = threading.Lock()
        self._kept: Credentials | None = None
        self._end = datetime.min.replace(tzinfo=UTC)
        self._registry = ""

    @property
    def account(self) -> str:
        """The account that the credentials are of: the token comes with the address of its registry.

        STS is not asked: from a private subnet with endpoints of ECR alone nobody reaches it.
        """
        self(renew=False)
        found = re.match(r"https://(\d{12})\.", self._registry)
        if not found:
            raise UserError(
                "what should be ECR does not say whose registry its token is for: give --account, or see where "
                "AWS_ENDPOINT_URL_ECR points to."
            )
        return found[1]

    def __call__(self, *, renew: bool) -> Credentials:
        """The token that is kept, or a new one where it ends soon or was refused."""
        with self._lock:
            if self._kept is None or renew or self._now() >= self._end - MARGIN:
                self._kept, self._end, self._registry = self._fetch()
                if self._now() >= self._end - MARGIN:
                    # By another clock than this machine's: it holds until it is refused.
                    self._end = datetime.max.replace(tzinfo=UTC)
            return self._kept

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
            raise UserError(
                "what should be ECR gives no token that can be read: see where AWS_ENDPOINT_URL_ECR points to."
            ) from None


def _docker_config(again: str) -> auth.AuthConfig:
    """Docker's own configuration; UserError, with no word of what stands in it, where it can't be read as one."""
    file = str(find_config_file() or "")
    try:
        # Read here, for docker-py takes a file that it can't read for an empty one. Docker takes an empty one as well.
        text = Path(file).read_text(encoding="utf-8") if file else ""
        config = auth.load_config(config_dict=json.loads(text) if text.strip() else None)
        if not isinstance(config.cred_helpers, dict):
            raise TypeError
    except (DockerException, OSError, ValueError, TypeError, AttributeError):
        raise UserError(f"the logins in {file} can't be read: fix that file, or move it away and {again}") from None
    return config


class StoredLogin:
    """A `Login` to any registry, `host[:port]`, by what Docker's configuration and its credential helpers have."""

    def __init__(self, host: str) -> None:
        self._host = host

    def __call__(self, *, renew: bool) -> Credentials | None:
        """What is stored now, None without any; looked up each time, for somebody may log in meanwhile."""
        again = f"run `docker login {self._host}` and then this command again."
        config = _docker_config(again)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a helper that is not installed, which is said below
                found = config.resolve_authconfig(self._host)
        except (DockerException, StoreError, OSError, ValueError, KeyError, TypeError):
            # Nothing of what the helper said: that may be the password.
            helper = f"docker-credential-{config.get_credential_store(self._host)}"
            raise UserError(
                f"{helper} does not give the login to {self._host}: see that it works, or {again}"
            ) from None
        if not found:
            return None
        stored = {name.lower(): value for name, value in found.items()}
        if stored.get("identitytoken"):
            raise UserError(
                f"Docker has an identity token for {self._host}, which only Docker can use: with a user and password, "
                f"{again}"
            )
        if not stored.get("username"):
            return None
        return Credentials(str(stored["username"]), str(stored.get("password") or ""))
