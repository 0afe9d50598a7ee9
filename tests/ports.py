"""Ports for servers that a test starts."""

import fcntl
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path

PORTS = range(20000, 32000)
"""Below those that Linux gives to connections and to servers that ask for any (net.ipv4.ip_local_port_range)."""


def free_port() -> int:
    """A port of this machine that nobody uses; each call, of whichever process of this user, gives another one.

    So nothing takes it until the server that it is for listens there, however long that takes.
    """
    with (Path(tempfile.gettempdir()) / f"berth-tests-last-port-{os.getuid()}").open("a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        before = int(last.read() or PORTS[-1])
        port = next(port for port in (*range(before + 1, PORTS.stop), *PORTS) if _is_free(port))
        last.truncate(0)
        last.write(str(port))
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as sock, suppress(OSError):
        sock.bind(("", port))
        return True
    return False
