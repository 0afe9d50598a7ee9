"""What the server takes of its host before anything slow: its port and its open files."""

import errno
import resource
import socket

from berth.serve.settings import SettingError
from berth.serve.variables import PORT

QUEUE = 2048  # connections that the kernel holds until they are accepted


def listen(port: int) -> socket.socket:
    """A listening socket on every IPv4 address; SettingError if the port can't be had."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # For its connections, which inherit it: without, an answer's body waits 40 ms for the client to acknowledge the
    # header. asyncio sets it only on sockets whose protocol is named.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.bind(("0.0.0.0", port))
        sock.listen(QUEUE)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(f"port {port} is taken: stop what listens there or set {PORT.name}") from error
        raise SettingError(f"port {port} can't be used ({error.strerror}): set {PORT.name} to another") from error
    return sock


def raise_open_files() -> int:
    """Let this process have as many file descriptors as it may, for each connection is one; how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
