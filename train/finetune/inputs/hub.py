"""Whether the hub can be reached, asked once before anything is loaded from it.

Its client asks what refuses for 25 s, and what never answers for more than 400 s (huggingface_hub 2.4, measured). Where
no connection comes about, it is told to work offline: it takes what its cache holds, and else fails at once.
"""

import os
import socket
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import huggingface_hub.constants

SECONDS = 10.0
"""For the name's address and the connection together."""
_PORTS = {"http": 80, "https": 443}


def needs(names: Collection[str | Path | None]) -> bool:
    """Whether one of these models, tokenizers and data sets is a name of the hub, and no path."""
    return any(isinstance(name, str) and not Path(name).exists() for name in names)


def go_offline_if_out_of_reach(say: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Have the hub's client work offline, and say so, unless a connection to the hub or to its proxy comes about."""
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return
    endpoint = huggingface_hub.constants.ENDPOINT
    reason = why_unreachable(*gate(endpoint), seconds)
    if not reason:
        return
    os.environ["HF_HUB_OFFLINE"] = "1"  # for processes that this one starts
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    if config := sys.modules.get("datasets.config"):
        config.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    say(f"warning: the hub, {endpoint}, can't be reached ({reason}): only what its cache holds is used")


def gate(endpoint: str) -> tuple[str, int]:
    """Host and port to connect to for a URL: its own, or those of the proxy that the environment names for it."""
    url = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(url.netloc):
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return url.hostname or "", url.port or _PORTS.get(url.scheme, 443)


def why_unreachable(host: str, port: int, seconds: float) -> str:
    """In words, why no connection comes about within so many seconds; empty where one does."""
    found: list[str] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=seconds).close()
        except OSError as error:
            found.append(error.strerror or str(error))
        else:
            found.append("")

    # In a thread, for a name is looked up without a limit of time.
    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(seconds)
    return found[0] if found else f"no answer within {seconds:.0f} s"
