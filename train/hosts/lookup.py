"""Name resolution in the background, and connections from the address of a given interface.

getaddrinfo has no time limit, and a resolver may take 20 s.
"""

import fcntl
import ipaddress
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from berth.runtime.host_files import read_text

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"
T = TypeVar("T")


def resolve(host: str) -> set[str]:
    """The IP addresses to which a name resolves now; empty if there are none (yet)."""
    try:
        return {plain_address(str(info[4][0])) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def plain_address(text: str) -> str:
    """The canonical text of an IP address: without scope, and IPv4 if it is an IPv4-mapped IPv6 address."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def connect(host: str, port: int, interface: str, timeout: float) -> socket.socket:
    """Open a TCP connection, from the address of `interface` unless that is empty. OSError if it fails.

    Without an interface the kernel may choose the address of another card in the same subnet, to which this host's name
    does not resolve.
    """
    if not interface:
        return socket.create_connection((host, port), timeout)
    sources = interface_addresses(interface)
    error = OSError(f"the interface {interface} has no address from which to reach {host}")
    for family, _, _, _, target in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if source := sources.get(family):
            try:
                return socket.create_connection((str(target[0]), port), timeout, (source, 0))
            except OSError as failure:
                error = OSError(f"from {source}, the address of {interface}: {failure}")
    raise error


def interface_addresses(name: str) -> dict[int, str]:
    """The first IPv4 and the first global IPv6 address of an interface of this host, by address family."""
    addresses: dict[int, str] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            addresses[socket.AF_INET] = socket.inet_ntoa(answer[20:24])
        except OSError:
            pass  # no IPv4 address
    # A kernel without IPv6 does not have the file.
    for address, _, _, scope, _, interface in map(str.split, read_text(_IPV6_ADDRESSES).splitlines()):
        if interface == name and (scope == _GLOBAL_SCOPE or name == "lo"):
            addresses.setdefault(socket.AF_INET6, str(ipaddress.ip_address(bytes.fromhex(address))))
    return addresses


def in_background(name: str, work: Callable[[], T]) -> Future[T]:
    """Run `work` in a daemon thread, which does not delay the end of the process; returns its future."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
