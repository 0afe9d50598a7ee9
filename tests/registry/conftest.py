"""Fixtures: real registries on loopback ports, fault proxies in front of them, and our client."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from berth.common.errors import UserError
from berth.ecr.registry import upload
from berth.ecr.registry.challenge import Credentials, Login
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.transport import Transport
from tests.doubles.certificates import Certificate, make_certificate
from tests.doubles.http_server import running as serving
from tests.registry.blobs import PART
from tests.registry.ecr_double import ecr_double
from tests.registry.fault_proxy import FaultProxy
from tests.registry.machine import Machine
from tests.registry.registries import Registry, running

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CREDENTIALS = Credentials("AWS", "a token that opens the registry of a test")

MakeRegistry = Callable[..., Registry]
MakeProxy = Callable[..., FaultProxy]


class Waits(list[float]):
    """Records the seconds that a client would have waited."""

    def sleep(self, seconds: float) -> None:
        self.append(seconds)


MakeClient = Callable[..., Client]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers are on this machine, so proxies are off; a test of proxies sets its own."""
    for name in (*PROXIES, *(name.lower() for name in PROXIES)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for this machine, signed by an unknown CA."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def make_registry(tmp_path: Path) -> Iterator[MakeRegistry]:
    """`make_registry(certificate=…, credentials=…, disk_bytes=…)`: one more registry, running until the test ends."""
    with ExitStack() as stack:

        def make(**options: object) -> Registry:
            folder = tmp_path / f"registry-{len(os.listdir(tmp_path))}"
            folder.mkdir()
            return stack.enter_context(running(Registry(folder, **options)))  # type: ignore[arg-type]

        yield make


@pytest.fixture
def registry(make_registry: MakeRegistry) -> Registry:
    """A registry with plain HTTP and without login."""
    return make_registry()


@pytest.fixture
def secure_registry(make_registry: MakeRegistry, certificate: Certificate) -> Registry:
    """A registry with TLS (unknown CA) and Basic authentication, like ECR."""
    return make_registry(certificate=certificate, credentials=CREDENTIALS)


@pytest.fixture
def make_proxy() -> Iterator[MakeProxy]:
    """`make_proxy(registry, …)`: a fault proxy in front of the registry, running until the test ends."""
    with ExitStack() as stack:

        def make(upstream: Registry, **options: object) -> FaultProxy:
            ca = upstream.certificate.ca if upstream.certificate else None
            proxy = FaultProxy(upstream.url, ca=ca, **options)  # type: ignore[arg-type]
            stack.enter_context(serving(proxy))
            return proxy

        yield make


@pytest.fixture
def proxy(make_proxy: MakeProxy, registry: Registry) -> FaultProxy:
    """A fault proxy in front of the plain registry."""
    return make_proxy(registry)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A user's machine, and an empty double of ECR."""
    with ecr_double(tmp_path_factory.mktemp("ecr")) as double:
        yield Machine(tmp_path_factory.mktemp("home"), double)


@pytest.fixture
def waits() -> Waits:
    """The waits of this test's clients, which do not really wait."""
    return Waits()


def no_login(*, renew: bool) -> None:
    """The login of a registry that needs none."""


class Logins:
    """A login that returns these credentials one after the other. renewals: `renew` of each call."""

    def __init__(self, *credentials: Credentials) -> None:
        self.left = list(credentials)
        self.renewals: list[bool] = []

    def __call__(self, *, renew: bool) -> Credentials | None:
        self.renewals.append(renew)
        return self.left.pop(0) if self.left else None


def refusal(act: Callable[[], object]) -> str:
    """The UserError that `act` raises, with a sentence per line."""
    with pytest.raises(UserError) as refused:
        act()
    assert all(line.endswith(".") for line in str(refused.value).splitlines())
    return str(refused.value)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the parts of an upload small."""
    monkeypatch.setattr(upload, "PART", PART)


@pytest.fixture
def client_of(waits: Waits) -> MakeClient:
    """`client_of(registry or proxy, login)`: our client, which records its waits instead of waiting."""

    def make(place: Registry | FaultProxy, login: Login = no_login, **options: object) -> Client:
        options.setdefault("sleep", waits.sleep)
        if isinstance(place, Registry):
            options.setdefault("certificates", place.certificates)
        return Client(Transport(place.host, login, **options))  # type: ignore[arg-type]

    return make


@pytest.fixture
def client(registry: Registry, client_of: MakeClient) -> Client:
    """Our client of the plain registry."""
    return client_of(registry)
