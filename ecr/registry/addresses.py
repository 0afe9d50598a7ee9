"""Hosts of registries, HOST or HOST:PORT: validation, loopback, plain HTTP, and the origin of a URL. Pure."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from berth.common.errors import UserError
from berth.common.http import without_password


def is_loopback(name: str) -> bool:
    """Whether a host's name or address certainly is this machine."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def takes_plain_http(host: str, info: Mapping[str, Any]) -> bool:
    """Whether the engine uses plain HTTP for a registry, by the insecure-registries in `docker info`."""
    settings = info.get("RegistryConfig") or {}
    known = (settings.get("IndexConfigs") or {}).get(host)
    if known is not None:
        return known.get("Secure") is False
    try:
        address = ipaddress.ip_address(hostname(host))
        return any(address in ipaddress.ip_network(each) for each in settings.get("InsecureRegistryCIDRs") or ())
    except ValueError:
        return False


def origin(url: str) -> tuple[str, str | None, int]:
    """Scheme, host and port of a URL: a login is only valid for the same three."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"https": 443}.get(parts.scheme, 80)


def hostname(host: str) -> str:
    """The name or address in HOST or HOST:PORT, without brackets; UserError if it is invalid."""
    match = re.fullmatch(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*)|\[[0-9A-Fa-f:.]+\])(?::(\w*))?", host)
    if not match:
        raise UserError(
            f"{without_password(' '.join(host.split()))[:120] or 'an empty name'} is not a registry: give HOST or "
            "HOST:PORT, without https:// and without a path."
        )
    port = match[2]
    if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and int(port) in range(1, 65536)):
        raise UserError(f"{host[:120]} is not a registry: the port is {port[:20] or 'empty'}, and must be 1 to 65535.")
    return match[1].strip("[]").lower()
