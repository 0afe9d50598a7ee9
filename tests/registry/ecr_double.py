"""A double of ECR on this machine, under ECR's own host names, so berth can't tell the difference.

Control plane: moto's server, by AWS_ENDPOINT_URL. Data plane: the distribution registry with Basic authentication like
ECR's (`AWS` and moto's token), with TLS on port 443, by default behind a fault proxy. Lines in /etc/hosts resolve the
names, and the CA is in /etc/docker/certs.d, where the engine looks for it; both are removed at the end. Needs root.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import boto3
import pytest
import requests
from moto.server import ThreadedMotoServer

from berth.ecr.registry.challenge import Credentials
from berth.ecr.repositories.names import EcrRegistry
from tests.doubles.certificates import make_certificate
from tests.doubles.http_server import running as serving
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Registry, running

ACCOUNT = "123456789012"
"""moto's account."""
TOKEN = f"{ACCOUNT}-auth-token"
"""moto's token, which is always the same."""
REGIONS = ("eu-west-1", "us-east-1")
HOSTS = Path("/etc/hosts")
CERTIFICATES = Path("/etc/docker/certs.d")
_MARK = "# a test of berth"
_LOCK = Path(tempfile.gettempdir(), "berth-ecr-double.lock")


@dataclass
class EcrDouble:
    """ECR's regions. environment: the variables for a process that uses them."""

    environment: dict[str, str]
    proxies: dict[str, FaultProxy] = field(default_factory=dict)
    registries: dict[str, Registry] = field(default_factory=dict)

    def host(self, region: str = REGIONS[0]) -> str:
        return EcrRegistry(ACCOUNT, region).host

    def client(self, region: str = REGIONS[0]) -> object:
        """A client of the control plane."""
        return boto3.client(
            "ecr",
            region_name=region,
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="dummy",
            aws_secret_access_key="dummy",
        )


@contextmanager
def ecr_double(folder: Path, *, faults: bool = True) -> Iterator[EcrDouble]:
    """Runs every region's registry for a `with` block, each on its own loopback address.

    faults: whether fault proxies are in front of the registries; they use a core.
    """
    if os.geteuid() != 0:
        pytest.fail("run this as root: the double of ECR writes /etc/hosts and listens on port 443.")
    with ExitStack() as stack:
        # Tests of two checkouts wait for each other: they share /etc/hosts and port 443.
        fcntl.flock(stack.enter_context(_LOCK.open("w")), fcntl.LOCK_EX)
        # Remove the lines of a killed run.
        kept = [line for line in HOSTS.read_text().splitlines(keepends=True) if not line.endswith(f"{_MARK}\n")]
        HOSTS.write_text("".join(kept))
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        stack.callback(server.stop)
        _, port = server.get_host_and_port()
        endpoint = f"http://127.0.0.1:{port}"
        # moto keeps the state of an earlier double in this process.
        requests.post(f"{endpoint}/moto-api/reset", timeout=10).raise_for_status()
        double = EcrDouble(
            {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "dummy",
                "AWS_SECRET_ACCESS_KEY": "dummy",
                "AWS_DEFAULT_REGION": REGIONS[0],
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        )
        certificate = make_certificate(folder / "tls", [double.host(region) for region in REGIONS])
        for number, region in enumerate(REGIONS, start=1):
            address, host = f"127.0.0.{number}", double.host(region)
            registry = Registry(folder / region, credentials=Credentials("AWS", TOKEN))
            if not faults:
                registry = replace(registry, certificate=certificate, address=address, port=443)
            registry.folder.mkdir()
            double.registries[region] = stack.enter_context(running(registry))
            if faults:
                proxy = FaultProxy(
                    registry.url, certificate=certificate.certificate, key=certificate.key, address=address, port=443
                )
                stack.enter_context(serving(proxy))
                double.proxies[region] = proxy
            stack.enter_context(_hosts_line(host, address))
            stack.enter_context(_trusted_ca(host, certificate.ca))
        yield double


@contextmanager
def _hosts_line(host: str, address: str) -> Iterator[None]:
    """Adds a line to /etc/hosts, which is written in place: a mounted file can't be replaced."""
    line = f"{address} {host} {_MARK}\n"
    HOSTS.write_text(HOSTS.read_text() + line)
    try:
        yield
    finally:
        HOSTS.write_text(HOSTS.read_text().replace(line, ""))


@contextmanager
def _trusted_ca(host: str, ca: Path) -> Iterator[None]:
    folder = CERTIFICATES / host
    folder.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy(ca, folder / "ca.crt")
        yield
    finally:
        shutil.rmtree(folder)
