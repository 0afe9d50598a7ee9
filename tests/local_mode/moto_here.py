"""moto's server for jobs that need S3, at an address that containers can reach."""

import contextlib
import ipaddress
import logging
from collections.abc import Iterator

from moto.server import ThreadedMotoServer

from berth.common import engine


def bridge_address() -> str:
    """This machine's address on the engine's bridge, which containers of every network can reach."""
    config = engine.connect().networks.get("bridge").attrs["IPAM"]["Config"][0]
    return str(config.get("Gateway") or next(ipaddress.ip_network(config["Subnet"]).hosts()))


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """Runs the server for a `with` block; yields its address."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else a line for each request
    address = bridge_address()
    server = ThreadedMotoServer(address, 0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield f"http://{address}:{port}"
    finally:
        server.stop()
