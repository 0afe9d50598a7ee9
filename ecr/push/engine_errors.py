"""The engine's errors in a push, and the remedy: a retry, a new login, or the user. Pure.

The patterns match messages of the engine (20.10 to 29), of ECR and of the distribution registry.
"""

import re
from dataclasses import dataclass
from enum import Enum


class Remedy(Enum):
    """What to do about an error of a push."""

    RETRY = "retry"
    """A retry may succeed: the registry is busy, or the connection broke."""
    LOGIN = "login"
    """The registry does not accept the token, or it has expired."""
    STOP = "stop"
    """A retry can't help; somebody has to fix it."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The remedy, and the sentence for the user if it does not help."""

    remedy: Remedy
    sentence: str


# (pattern, remedy, sentence); the first match decides. {message} is the engine's message, {host} the registry, {where}
# the registry and repository, {1} the pattern's group.
_TABLE: tuple[tuple[str, Remedy, str], ...] = (
    (
        r"not authorized to perform:? ([a-z-]+:\w+)",
        Remedy.STOP,
        "{where}: the permission {1} is missing: ask for it, ecr/README.md lists what a push needs.",
    ),
    (
        r"x509|certificate",
        Remedy.STOP,
        "the engine does not trust the certificate of {host} ({message}): put its CA into "
        "/etc/docker/certs.d/{host}/ca.crt, where build.py looks too, and push again.",
    ),
    (
        r"server gave HTTP response to HTTPS",
        Remedy.STOP,
        "{host} uses plain HTTP, which an engine allows on loopback only: give the registry a certificate, or name it "
        "in the engine's insecure-registries (daemon.json).",
    ),
    (
        r"immutable",
        Remedy.STOP,
        "{where} has immutable tags, and the tag names another image already: push under another --tag.",
    ),
    (
        r"name unknown|repository .*(does not exist|not found)",
        Remedy.STOP,
        "{where} does not exist, or no longer: push again, which creates it on ECR; elsewhere create it first.",
    ),
    (
        r"no space left|\b507\b|insufficient storage",
        Remedy.STOP,
        "the disk of {host} is full ({message}): make room there, then push again; complete layers are not sent again.",
    ),
    (
        r"too ?many ?requests|rate (limit )?exceeded|throttl|\b429\b",
        Remedy.RETRY,
        "{where}: the registry gets too many requests ({message}): push again later; complete layers are not sent "
        "again.",
    ),
    (
        r"quota|limit exceeded",
        Remedy.STOP,
        "{host} refused the image for a quota of the account ({message}): raise it in Service Quotas, or remove "
        "images.",
    ),
    (
        r"authorization token has expired|no basic auth credentials|unauthorized|\b401\b",
        Remedy.LOGIN,
        "{host} does not accept the login ({message}): check which account it is for, or run `docker login {host}`.",
    ),
    (
        r"\b50[0234]\b|unavailable|internal server error",
        Remedy.RETRY,
        "{where}: the registry is too busy or broken ({message}): push again later; complete layers are not sent "
        "again. Its own log may say more, such as a full disk.",
    ),
    (
        r"\bEOF\b|connection re(set|fused)|broken pipe|time(d )?out|deadline exceeded|closed network connection|"
        r"no route to host|temporary failure|try again|server misbehaving|blob upload (unknown|invalid)",
        Remedy.RETRY,
        "{where}: the connection broke again and again ({message}): push again; complete layers are not sent again.",
    ),
    (
        r"no such host",
        Remedy.STOP,
        "the engine can't find the host {host}: check the region, the account and the spelling.",
    ),
)


def reason(error: str) -> str:
    """An engine's error on one line, without the request that Go puts before it (a long URL, and the addresses of both
    ends of a connection). Of an unreadable answer only the status stays.
    """
    message = re.sub(r"\s+", " ", error).strip().rstrip(".")
    message = re.sub(r"\berror parsing HTTP (\d{3}) response body: .*", r"status \1", message)
    message = re.sub(r'\b(Get|Head|Post|Put|Patch|Delete) "?https?://[^\s"]+"?: ', "", message)
    return re.sub(r"\b(dial|read|write) (tcp|udp)\b[^a-z]*:( (connect|read|write):)? ", "", message)


def diagnose(error: str, host: str, repository: str) -> Diagnosis:
    """The remedy for an engine's error. An unknown error stops the push, because retries would hide it."""
    message = reason(error)
    where = f"{host}/{repository}"
    for pattern, remedy, sentence in _TABLE:
        match = re.search(pattern, message, re.IGNORECASE)
        if match:
            return Diagnosis(
                remedy, sentence.format(match[0], *match.groups(), message=message, host=host, where=where)
            )
    return Diagnosis(Remedy.STOP, f"{where} refused the push: {message}. Complete layers stay there for the next push.")
