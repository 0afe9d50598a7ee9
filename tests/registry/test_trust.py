"""Hosts, schemes, proxies and certificates of our registry client."""

import shutil
import socket
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from berth.common.concurrency import run_parallel
from berth.common.errors import UserError
from berth.ecr.registry import transport
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.transport import Transport
from tests.doubles.certificates import Certificate, make_certificate
from tests.ports import free_port
from tests.registry.blobs import BLOB, content, send
from tests.registry.conftest import CREDENTIALS, Logins, MakeClient, MakeProxy, MakeRegistry, Waits, no_login, refusal
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Registry

pytestmark = pytest.mark.usefixtures("small_parts")

INVALID_S = -1
"""An invalid time-out: a request that used it would fail before it is sent."""


def test_tls_with_ca_in_dockers_folder(secure_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(CREDENTIALS)
    client = client_of(secure_registry, logins)
    client.ping()
    assert logins.renewals == []
    send(client)
    assert content(client) == BLOB
    assert logins.renewals == [False]


def test_tls_with_ca_bundle_of_the_environment(
    secure_registry: Registry, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert secure_registry.certificate is not None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(secure_registry.certificate.ca))
    client_of(secure_registry, certificates=tmp_path / "none").ping()


def test_error_for_unknown_ca_names_its_folder(
    secure_registry: Registry, client_of: MakeClient, tmp_path: Path
) -> None:
    host = secure_registry.host
    (tmp_path / "other" / host).mkdir(parents=True)
    shutil.copy(make_certificate(tmp_path / "another-ca").ca, tmp_path / "other" / host / "ca.crt")
    for folder in (tmp_path / "none", tmp_path / "other"):
        sentence = refusal(client_of(secure_registry, certificates=folder).ping)
        assert sentence.startswith(f"the certificate of {host} is not trusted (")
        assert f"put its CA into {folder}/{host}/ca.crt" in sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"names": ("registry.example",)}, "is for another name (IP address mismatch"),
        ({"until": timedelta(days=-1)}, "is not valid now (certificate has expired): have it renewed"),
    ],
)
def test_error_for_invalid_certificate(
    make_registry: MakeRegistry, client_of: MakeClient, tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    place = make_registry(certificate=make_certificate(tmp_path / "tls", **options))
    assert f"the certificate of {place.host} {sentence}" in refusal(client_of(place).ping)


def test_error_for_malformed_ca_file(client_of: MakeClient, registry: Registry, tmp_path: Path) -> None:
    (tmp_path / registry.host).mkdir()
    (tmp_path / registry.host / "ca.crt").write_text("not a certificate")
    sentence = refusal(lambda: client_of(registry, certificates=tmp_path))
    file = f"{tmp_path}/{registry.host}/ca.crt"
    assert sentence == f"{file} is not a PEM certificate: put the registry's CA there, or remove it."


def test_plain_http_is_for_loopback_only(registry: Registry, monkeypatch: pytest.MonkeyPatch, waits: Waits) -> None:
    monkeypatch.setattr(transport, "is_loopback", lambda _: False)
    client = Client(Transport(registry.host, no_login, sleep=waits.sleep))
    assert "and plain HTTP is only used on loopback" in refusal(client.ping)


def test_loopback_registry_ignores_proxies(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert client.tags("a/b") == []


def test_other_hosts_use_the_proxy(monkeypatch: pytest.MonkeyPatch, waits: Waits) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@127.0.0.1:9")
    sentence = refusal(Client(Transport("registry.example", no_login, sleep=waits.sleep)).ping)
    assert sentence == (
        "registry.example can't be reached through the environment's proxy (Connection refused): check HTTPS_PROXY, or "
        "add the host to NO_PROXY."
    )


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, {"Content-Type": "text/html"}, b"<!DOCTYPE html><title>a login portal</title>"),
        (404, {}, b"nothing here"),
        (302, {"Location": "https://127.0.0.1:9/login"}, b""),
    ],
)
def test_error_for_host_that_is_not_a_registry(
    proxy: FaultProxy, client_of: MakeClient, status: int, headers: dict[str, str], body: bytes
) -> None:
    proxy.answer(status, path="^/v2/$", times=9, headers=headers, body=body)
    assert refusal(client_of(proxy).ping).startswith(f"{proxy.host} ")


def test_error_for_closed_port(waits: Waits) -> None:
    host = f"127.0.0.1:{free_port()}"
    assert refusal(Client(Transport(host, no_login, sleep=waits.sleep)).ping) == (
        f"{host} can't be reached (Connection refused): check that the name and the port are right and that the "
        "registry runs, then run this again."
    )
    assert waits == []


def test_silent_host_is_given_up_after_the_short_time_outs(monkeypatch: pytest.MonkeyPatch, waits: Waits) -> None:
    """On loopback the host is tried with HTTPS and HTTP, each with the short time-outs of a first request."""
    monkeypatch.setattr(transport, "_CONNECT_S", 0.2)
    monkeypatch.setattr(transport, "_FIRST_READ_S", 0.2)
    monkeypatch.setattr(transport, "_READ_S", INVALID_S)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        assert refusal(Client(Transport(host, no_login, sleep=waits.sleep)).ping) == (
            f"{host} can't be reached (timed out): check that the name and the port are right and that the registry "
            "runs, then run this again."
        )
    assert waits == []


def test_threads_share_one_probe_of_a_silent_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_CONNECT_S", 0.5)
    monkeypatch.setattr(transport, "_FIRST_READ_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(Transport(f"127.0.0.1:{silent.getsockname()[1]}", no_login))
        refused = run_parallel(range(4), lambda *_: client.ping())
        assert len({str(each) for each in refused}) == 1
        assert all(isinstance(each, UserError) for each in refused)
        assert _calls(silent) == 2  # HTTPS and HTTP
        # The failure is not cached.
        refusal(client.ping)
        assert _calls(silent) == 2


def _calls(server: socket.socket) -> int:
    """The number of connections that a server has not accepted yet."""
    server.settimeout(0)
    number = 0
    with suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            number += 1
    return number


def test_known_registry_gets_the_long_time_outs(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.ping()
    monkeypatch.setattr(transport, "_FIRST_READ_S", INVALID_S)
    send(client)
    assert content(client) == BLOB


def test_error_for_missing_ca_bundle(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/bundle")
    sentence = refusal(Client(Transport(registry.host, no_login)).ping)
    assert "invalid path: /no/such/bundle): fix" in sentence


def test_upload_location_without_tls_is_refused(
    secure_registry: Registry, make_proxy: MakeProxy, client_of: MakeClient, certificate: Certificate, tmp_path: Path
) -> None:
    proxy = make_proxy(secure_registry, certificate=certificate.certificate, key=certificate.key)
    (tmp_path / "certs.d" / proxy.host).mkdir(parents=True)
    shutil.copy(certificate.ca, tmp_path / "certs.d" / proxy.host / "ca.crt")
    client = client_of(proxy, Logins(CREDENTIALS), certificates=tmp_path / "certs.d")
    proxy.answer(202, method="POST", headers={"Location": f"http://{proxy.host}/v2/a/b/blobs/uploads/1"})
    assert "redirects from HTTPS to http://" in refusal(lambda: send(client))
    send(client)
    assert content(client) == BLOB
