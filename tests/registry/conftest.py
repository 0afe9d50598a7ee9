"""Real registries on loopback ports, faults in front of them, and our own client to ask them."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from berth.common.errors import UserError
from berth.ecr.registry import upload
from berth.ecr.registry.challenge import Credentials, Login
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.transport import Transport
from tests.registry.blobs import PART
from tests.registry.ecr_double import ecr_double
from tests.registry.fault_proxy import FaultProxy, proxying
from tests.registry.machine import Machine
from tests.registry.registries import Certificate, Registry, make_certificate, running

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
CREDENTIALS = Credentials("AWS", "a token that opens the registry of a test")

MakeRegistry = Callable[..., Registry]
MakeProxy = Callable[..., FaultProxy]


class Waits(list[float]):
    """The seconds that a client would have waited."""

    def sleep(self, seconds: float) -> None:
        self.append(seconds)


MakeClient = Callable[..., Client]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested listens on this machine; a test of proxies sets its own."""
    for name in (*PROXIES, *(name.lower() for name in PROXIES)):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate for this machine by a CA that nobody knows."""
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
    """Plain HTTP, open to all."""
    return make_registry()


@pytest.fixture
def secure_registry(make_registry: MakeRegistry, certificate: Certificate) -> Registry:
    """TLS by a CA that nobody knows, and Basic authentication as ECR has it."""
    return make_registry(certificate=certificate, credentials=CREDENTIALS)


@pytest.fixture
def make_proxy() -> Iterator[MakeProxy]:
    """`make_proxy(registry, …)`: a fault proxy in front of it, running until the test ends."""
    with ExitStack() as stack:

        def make(upstream: Registry, **options: object) -> FaultProxy:
            ca = upstream.certificate.ca if upstream.certificate else None
            return stack.enter_context(proxying(FaultProxy(upstream.url, ca=ca, **options)))  # type: ignore[arg-type]

        yield make


@pytest.fixture
def proxy(make_proxy: MakeProxy, registry: Registry) -> FaultProxy:
    """A fault proxy in front of the plain registry."""
    return make_proxy(registry)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A user's machine, and a double of ECR that has nothing in it yet."""
    with ecr_double(tmp_path_factory.mktemp("ecr")) as double:
        yield Machine(tmp_path_factory.mktemp("home"), double)


@pytest.fixture
def waits() -> Waits:
    """What the clients of this test wait, instead of waiting."""
    return Waits()


def no_login(*, renew: bool) -> None:
    """Of a registry that asks for nothing."""


class Logins:
    """A login that gives these credentials in turn, and notes how it was asked."""

    def __init__(self, *credentials: Credentials) -> None:
        self.left = list(credentials)
        self.asked: list[bool] = []

    def __call__(self, *, renew: bool) -> Credentials | None:
        self.asked.append(renew)
        return self.left.pop(0) if self.left else None


def refusal(act: Callable[[], object]) -> str:
    """The one sentence that something is refused with."""
    with pytest.raises(UserError) as refused:
        act()
    said = str(refused.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a size that tests can afford."""
    monkeypatch.setattr(upload, "PART", PART)


@pytest.fixture
def client_of(waits: Waits) -> MakeClient:
    """`client_of(registry or proxy, login)`: our client for it, which never really waits."""

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


FAULTS = pytest.StashKey[list[str]]()


@pytest.fixture
def fault_row(request: pytest.FixtureRequest) -> Callable[[str, str, int], None]:
    """Notes what happened to a push, what was said or done, and the bytes of layers that went over the wire again."""

    def note(fault: str, said: str, again: int) -> None:
        rows = request.config.stash.setdefault(FAULTS, [])
        rows.append(f"{fault} | {said} | {again / 1e6:.1f}")

    return note


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table of faults, at the end of the tests that made them."""
    if rows := config.stash.get(FAULTS, []):
        terminalreporter.section("faults of a push: what happened to it | what was said or done | MB sent again")
        for row in rows:
            terminalreporter.line(row)
