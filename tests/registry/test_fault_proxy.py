"""The fault proxy: it changes nothing unless told to, counts every byte, and breaks what it is told to."""

import hashlib
import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import requests

from tests.registry.conftest import CREDENTIALS, MakeProxy
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Certificate, Registry

BODY = bytes(range(256)) * 4000
DIGEST = "sha256:" + hashlib.sha256(BODY).hexdigest()


def begin(proxy: FaultProxy, **options: object) -> str:
    answer = requests.post(f"{proxy.url}/v2/a/b/blobs/uploads/", timeout=30, **options)  # type: ignore[arg-type]
    assert answer.status_code == 202
    assert urlsplit(answer.headers["Location"]).netloc == proxy.host
    return answer.headers["Location"]


def in_pieces() -> Iterator[bytes]:
    """requests sends an iterator with Transfer-Encoding: chunked, as the engine sends layers."""
    for offset in range(0, len(BODY), 100_000):
        yield BODY[offset : offset + 100_000]


@pytest.mark.parametrize("chunked", [True, False])
def test_a_blob_goes_up_and_comes_down_unchanged_and_is_counted(proxy: FaultProxy, chunked: bool) -> None:
    location = begin(proxy)
    answer = requests.patch(location, data=in_pieces() if chunked else BODY, timeout=30)
    assert answer.status_code == 202
    answer = requests.put(f"{answer.headers['Location']}&digest={DIGEST}", timeout=30)
    assert answer.status_code == 201
    got = requests.get(f"{proxy.url}/v2/a/b/blobs/{DIGEST}", timeout=30)
    assert got.content == BODY
    assert proxy.uploaded() == proxy.uploaded("PATCH", f"/a/b/blobs/uploads/{urlsplit(location).path[-36:]}")
    assert proxy.uploaded() == len(BODY)
    assert [each.status for each in proxy.requests] == [202, 202, 201, 200]


def test_head_and_errors_pass_and_the_connection_is_kept(proxy: FaultProxy) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
    sockets = set()
    for method, path in [("HEAD", f"/v2/a/b/blobs/{DIGEST}"), ("GET", "/v2/a/tags/list")] * 2:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 404
        assert body == b"" if method == "HEAD" else b"NAME_UNKNOWN" in body
        assert connection.sock is not None
        sockets.add(connection.sock.getsockname())
    assert len(sockets) == 1
    connection.close()


def test_a_client_that_waits_for_100_continue_is_told_to_go_on(proxy: FaultProxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v2/a/blobs/uploads/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n"
        )
        said = b""
        while b"202 Accepted" not in said:
            piece = connection.recv(1000)
            assert piece
            said += piece
        assert said.startswith(b"HTTP/1.1 100 Continue")


def test_the_chosen_requests_are_answered_and_no_others(proxy: FaultProxy) -> None:
    proxy.answer(429, method="GET", path="tags/list", skip=1, times=2, headers={"Retry-After": "7"}, body=b"slowly")
    answers = [requests.get(f"{proxy.url}/v2/a/tags/list", timeout=30) for _ in range(4)]
    assert [each.status_code for each in answers] == [404, 429, 429, 404]
    assert answers[1].content == b"slowly"
    assert answers[1].headers["Retry-After"] == "7"
    assert proxy.count("GET", "tags") == 4


@pytest.mark.parametrize("chunked", [True, False])
def test_a_connection_is_dropped_after_so_many_bytes(proxy: FaultProxy, chunked: bool) -> None:
    proxy.drop(after=300_001)
    location = begin(proxy)
    with pytest.raises(requests.ConnectionError):
        requests.patch(location, data=in_pieces() if chunked else BODY, timeout=30)
    assert proxy.uploaded() == 300_001
    assert proxy.requests[-1].status == 0


def test_an_answer_is_lost_though_the_registry_did_its_work(proxy: FaultProxy) -> None:
    location = begin(proxy)
    proxy.drop(after=None, method="PUT")
    with pytest.raises(requests.ConnectionError):
        requests.put(f"{location}&digest={DIGEST}", data=BODY, timeout=30)
    assert requests.head(f"{proxy.url}/v2/a/b/blobs/{DIGEST}", timeout=30).status_code == 200


def test_a_token_expires_after_so_many_bytes_until_another_comes(
    secure_registry: Registry, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy(secure_registry, credentials=CREDENTIALS)
    first, second = ("AWS", "first"), ("AWS", "second")
    location = begin(proxy, auth=first)
    proxy.expire(after=500_000)
    answer = requests.patch(location, data=BODY, auth=first, timeout=30)
    assert answer.status_code == 202
    location = answer.headers["Location"]
    refused = requests.get(location, auth=first, timeout=30)
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    assert requests.get(location, auth=second, timeout=30).status_code == 204


def test_without_a_login_the_registry_itself_asks_for_one(secure_registry: Registry, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(secure_registry, credentials=CREDENTIALS)
    answer = requests.get(f"{proxy.url}/v2/", timeout=30)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == 'Basic realm="berth"'


def test_it_speaks_tls(registry: Registry, make_proxy: MakeProxy, certificate: Certificate) -> None:
    proxy = make_proxy(registry, certificate=certificate.certificate, key=certificate.key)
    assert proxy.url.startswith("https://")
    # One that connects and says nothing holds nobody else.
    with socket.create_connection(("127.0.0.1", proxy.port)):
        assert requests.get(f"{proxy.url}/v2/", verify=str(certificate.ca), timeout=30).status_code == 200
    with pytest.raises(requests.exceptions.SSLError) as refusal:
        requests.get(f"{proxy.url}/v2/", timeout=30)
    assert "CERTIFICATE_VERIFY_FAILED" in str(refusal.value)
