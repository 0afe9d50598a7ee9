"""The server's port and its limit of open files, both set before anything slow starts."""

import errno
import resource
import socket

from berth.serve.configuration.settings import SettingError
from berth.serve.configuration.variables import PORT

QUEUE = 2048  # connections that wait in the kernel to be accepted


def listen(port: int) -> socket.socket:
    """A listening socket on every IPv4 address; SettingError if the port can't be opened."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit this option. Without it, the body of a response waits 40 ms until the client has
    # acknowledged the header. asyncio sets it only on sockets that were created with an explicit protocol.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.bind(("0.0.0.0", port))
        sock.listen(QUEUE)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingError(f"port {port} is in use: stop what listens there or set {PORT.name}") from error
        raise SettingError(f"port {port} can't be used ({error.strerror}): set {PORT.name} to another") from error
    return sock


def raise_open_files() -> int:
    """Raise the limit of open files to the hard limit, because each connection is one; returns the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
