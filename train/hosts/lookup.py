"""Addresses of hosts, looked up in the background: getaddrinfo has no time limit, and a resolver may take 20 s."""

import ipaddress
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from berth.train.log import get_logger

_SLOW_SECONDS = 5.0
T = TypeVar("T")


def resolve(host: str) -> set[str]:
    """The IP addresses of a name now, empty if it has none (yet)."""
    try:
        return {plain_address(str(info[4][0])) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def plain_address(text: str) -> str:
    """An IP address as one text, whatever the socket that it was read from calls it."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def in_background(name: str, work: Callable[[], T]) -> Future[T]:
    """What `work` returns or raises, in a thread that holds up neither its caller nor the end of the process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(found)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


class Lookups:
    """Looks names up, each once at a time, however many wait for it."""

    def __init__(self, resolve: Callable[[str], set[str]]) -> None:
        self._resolve = resolve
        self._lock = threading.Lock()
        self._running: dict[str, Future[set[str]]] = {}

    def addresses(self, host: str) -> Future[set[str]]:
        """The name's addresses, by the look-up that is under way, else by a new one."""
        with self._lock:
            running = self._running.get(host)
            if running is None or running.done():
                running = self._running[host] = in_background(f"look up {host}", lambda: self._look_up(host))
            return running

    def _look_up(self, host: str) -> set[str]:
        began = time.monotonic()
        found = self._resolve(host)
        if (took := time.monotonic() - began) > _SLOW_SECONDS:
            get_logger().info("rendezvous: looking up the name %s took %.0f s", host, took)
        return found
