"""Addresses of hosts, looked up in the background: getaddrinfo has no time limit, and a resolver may take 20 s; and
connections from the address of one of this host's interfaces.
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

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = "00"
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


def connect(host: str, port: int, interface: str, timeout: float) -> socket.socket:
    """A TCP connection; from the address of `interface` where one is named, for the kernel may take another card's of
    the same subnet, which is not the address that this host's name has. OSError if there is none.
    """
    if not interface:
        return socket.create_connection((host, port), timeout)
    sources = interface_addresses(interface)
    error = OSError(f"the interface {interface} has no address to reach it from")
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
            pass  # it has none
    try:
        lines = _IPV6_ADDRESSES.read_text("ascii").splitlines()
    except OSError:
        lines = []  # a kernel without IPv6
    for address, _, _, scope, _, interface in map(str.split, lines):
        if interface == name and (scope == _GLOBAL_SCOPE or name == "lo"):
            addresses.setdefault(socket.AF_INET6, str(ipaddress.ip_address(bytes.fromhex(address))))
    return addresses


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
