"""moto's server, for jobs that need S3: on an address that containers reach, too."""

import contextlib
import ipaddress
import logging
from collections.abc import Iterator

from moto.server import ThreadedMotoServer

from berth.common import engine


def bridge_address() -> str:
    """This machine's on the engine's own bridge, which the containers of every network reach."""
    config = engine.connect().networks.get("bridge").attrs["IPAM"]["Config"][0]
    return str(config.get("Gateway") or next(ipaddress.ip_network(config["Subnet"]).hosts()))


@contextlib.contextmanager
def moto_server() -> Iterator[str]:
    """Its address, while the block runs."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else a line for each request
    address = bridge_address()
    server = ThreadedMotoServer(address, 0, verbose=False)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield f"http://{address}:{port}"
    finally:
        server.stop()
