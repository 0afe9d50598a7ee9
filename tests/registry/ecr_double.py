"""A double of ECR on this machine, under ECR's own host names: nothing of the kit knows that it is none.

Control plane: moto's server, by AWS_ENDPOINT_URL. Data plane: the distribution registry with Basic authentication as
ECR's, `AWS` and moto's token, with TLS on the host's port 443, behind a fault proxy there unless it is left out. The
names resolve here by lines in /etc/hosts, and their CA is where the engine looks for it, /etc/docker/certs.d; both go
when it ends. Needs root.
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
from tests.registry.fault_proxy import FaultProxy, proxying
from tests.registry.registries import Registry, make_certificate, running

ACCOUNT = "123456789012"
"""The one that moto answers for."""
TOKEN = f"{ACCOUNT}-auth-token"
"""What moto gives as a token, always."""
REGIONS = ("eu-west-1", "us-east-1")
HOSTS = Path("/etc/hosts")
CERTIFICATES = Path("/etc/docker/certs.d")
_MARK = "# a test of berth"
_LOCK = Path(tempfile.gettempdir(), "berth-ecr-double.lock")


@dataclass
class EcrDouble:
    """ECR's regions, and what a process needs in its environment to work with them."""

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
    """Every region's registry for the length of a `with` block, each on a loopback address of its own.

    faults: without, there is no proxy in front of the registries, which takes a core's time of its own.
    """
    if os.geteuid() != 0:
        pytest.fail("ECR's host names can only be played by root, who may write /etc/hosts and take port 443.")
    with ExitStack() as stack:
        # There is one /etc/hosts and one port 443: the tests of two checkouts wait for each other.
        fcntl.flock(stack.enter_context(_LOCK.open("w")), fcntl.LOCK_EX)
        # What a run that was killed has left.
        kept = [line for line in HOSTS.read_text().splitlines(keepends=True) if not line.endswith(f"{_MARK}\n")]
        HOSTS.write_text("".join(kept))
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        stack.callback(server.stop)
        _, port = server.get_host_and_port()
        endpoint = f"http://127.0.0.1:{port}"
        # What another double in this process has left: moto keeps it as long as the process lives.
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
                double.proxies[region] = stack.enter_context(proxying(proxy))
            stack.enter_context(_named(host, address))
            stack.enter_context(_trusted(host, certificate.ca))
        yield double


@contextmanager
def _named(host: str, address: str) -> Iterator[None]:
    """A line in /etc/hosts, which is written in place: where it is a mount it can't be replaced."""
    line = f"{address} {host} {_MARK}\n"
    HOSTS.write_text(HOSTS.read_text() + line)
    try:
        yield
    finally:
        HOSTS.write_text(HOSTS.read_text().replace(line, ""))


@contextmanager
def _trusted(host: str, ca: Path) -> Iterator[None]:
    folder = CERTIFICATES / host
    folder.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy(ca, folder / "ca.crt")
        yield
    finally:
        shutil.rmtree(folder)
