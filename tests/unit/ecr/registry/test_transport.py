"""Hosts of registries: validation, loopback, plain HTTP and time-outs."""

import pytest

from berth.common.errors import UserError
from berth.ecr.registry.addresses import is_loopback, takes_plain_http
from berth.ecr.registry.transport import Transport, timeouts_s


def no_login(renew: bool) -> None:
    """A `Login` without credentials."""


HOSTS = ["", "https://x", "x/y", "user:secret@host", "a b", "::1", "-x", "x\ny", "ü.example"]
PORTS = ["99999", "0", "", "notaport", "٣", "5_0"]


@pytest.mark.parametrize(
    ("host", "fault"),
    [
        *((host, "give HOST or HOST:PORT, without") for host in HOSTS),
        *((f"x:{port}", f"the port is {port or 'empty'}, and must be 1 to") for port in PORTS),
    ],
)
def test_invalid_hosts_and_ports_are_refused(host: str, fault: str) -> None:
    with pytest.raises(UserError, match=f"is not a registry: {fault}") as refusal:
        Transport(host, no_login)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("host", ["x", "x:1", "127.0.0.1:5000", "[::1]:5000", "[::1]", "a-b.example_c:65535"])
def test_valid_hosts_are_accepted(host: str) -> None:
    assert Transport(host, no_login).host == host


@pytest.mark.parametrize(
    ("name", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("localhost.example", False),
        ("10.0.0.1", False),
        ("127.0.0.1.example", False),
        ("", False),
    ],
)
def test_is_loopback(name: str, loopback: bool) -> None:
    assert is_loopback(name) is loopback


@pytest.mark.parametrize(
    ("method", "known", "seconds"),
    [
        ("GET", False, (10, 10)),  # on loopback twice, so a silent host is given up after 20 s
        ("GET", True, (10, 60)),
        ("POST", True, (10, 60)),
        ("PATCH", True, (10, 300)),
        ("PUT", True, (10, 300)),
    ],
)
def test_timeouts_depend_on_method_and_earlier_answers(method: str, known: bool, seconds: tuple[float, float]) -> None:
    assert timeouts_s(method, known=known) == seconds


INFO = {
    "RegistryConfig": {
        "IndexConfigs": {"docker.io": {"Secure": True}, "registry.lan:5000": {"Secure": False}},
        "InsecureRegistryCIDRs": ["::1/128", "127.0.0.0/8", "10.1.0.0/16"],
    }
}


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("registry.lan:5000", True),
        ("registry.lan", False),
        ("docker.io", False),
        ("10.1.2.3:5000", True),
        ("10.2.2.3:5000", False),
        ("[::1]:5000", True),
    ],
)
def test_takes_plain_http(host: str, plain: bool) -> None:
    assert takes_plain_http(host, INFO) == plain
    assert not takes_plain_http(host, {})
    assert not takes_plain_http(host, {"RegistryConfig": None})
