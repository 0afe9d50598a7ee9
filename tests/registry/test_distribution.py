"""Our client of registries against the real distribution registry, and against the faults that a proxy plays."""

import base64
import hashlib
import http.server
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from berth.ecr.registry import transport, upload
from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.credentials import Credentials
from berth.ecr.registry.manifest import digest_of
from berth.images.errors import UserError
from tests.registry import made_images
from tests.registry.conftest import CREDENTIALS, MakeClient, MakeProxy, MakeRegistry, Waits, no_login
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Certificate, Registry, free_port, make_certificate

PART = 200_000
BLOB = hashlib.shake_256(b"a blob of four parts").digest(3 * PART + 50_000)
DIGEST = digest_of(BLOB)
MISSING = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a size that tests can afford."""
    monkeypatch.setattr(upload, "PART", PART)


def open_blob(offset: int) -> Iterator[bytes]:
    for start in range(offset, len(BLOB), 33_333):
        yield BLOB[start : start + 33_333]


def send(client: Client, repository: str = "a/b", sent: Callable[[int], None] = lambda _: None) -> int:
    return client.upload_blob(repository, DIGEST, len(BLOB), open_blob, sent)


def content(client: Client, offset: int = 0, repository: str = "a/b") -> bytes:
    return b"".join(client.read_blob(repository, DIGEST, offset))


def refusal(act: Callable[[], object]) -> str:
    """The one sentence that something is refused with."""
    with pytest.raises(UserError) as refused:
        act()
    said = str(refused.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


class Logins:
    """A login that gives these credentials in turn, and notes how it was asked."""

    def __init__(self, *credentials: Credentials) -> None:
        self.left = list(credentials)
        self.asked: list[bool] = []

    def __call__(self, renew: bool) -> Credentials | None:
        self.asked.append(renew)
        return self.left.pop(0) if self.left else None


# What goes up comes down.


def test_a_blob_goes_up_in_parts_and_comes_down(client: Client) -> None:
    arrived: list[int] = []
    assert client.blob_size("a/b", DIGEST) is None
    assert send(client, sent=arrived.append) == len(BLOB)
    assert arrived == [0, PART, 2 * PART, 3 * PART, len(BLOB), len(BLOB)]
    assert client.blob_size("a/b", DIGEST) == len(BLOB)
    assert content(client) == BLOB
    assert content(client, PART) == BLOB[PART:]
    assert content(client, len(BLOB)) == b""
    assert client.blob("a/b", DIGEST) == BLOB


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1])
def test_blobs_of_any_size(client: Client, size: int) -> None:
    digest = client.put_blob("a/b", BLOB[:size])
    assert client.blob_size("a/b", digest) == size
    assert client.blob("a/b", digest) == BLOB[:size]


def test_a_small_blob_goes_in_one_put(proxy: FaultProxy, client_of: MakeClient) -> None:
    client_of(proxy).put_blob("a/b", BLOB[:PART])
    assert (proxy.count("PATCH"), proxy.count("PUT"), proxy.uploaded("PUT")) == (0, 1, PART)


def test_manifests_tags_and_what_is_not_there(client: Client) -> None:
    image = made_images.image()
    assert client.manifest("a/b", "1") is None
    assert client.tags("a/b") == []
    assert made_images.put(client, "a/b", "1", image) == image.manifest.digest
    assert client.put_manifest("a/b", "2", image.manifest) == image.manifest.digest
    assert client.manifest("a/b", "1") == image.manifest
    assert client.manifest("a/b", image.manifest.digest) == image.manifest
    assert client.manifest("a/b", MISSING) is None
    assert sorted(client.tags("a/b")) == ["1", "2"]
    assert client.referrers("a/b", image.manifest.digest) is None


def test_the_registry_of_debian_removes_no_tags(client: Client) -> None:
    image = made_images.image()
    made_images.put(client, "a/b", "1", image)
    assert client.delete_tag("a/b", "1") is False
    assert client.manifest("a/b", "1") == image.manifest


def test_many_tags_come_in_pages(proxy: FaultProxy, client_of: MakeClient) -> None:
    """Which the distribution registry 2.8 has none of."""
    first = json.dumps({"name": "a/b", "tags": ["1"]}).encode()
    second = json.dumps({"name": "a/b", "tags": ["2", "3"]}).encode()
    link = {"Link": '</v2/a/b/tags/list?last=1&n=2>; rel="next"'}
    proxy.answer(200, path="tags/list$", headers=link, body=first)
    proxy.answer(200, path="tags/list.last=1&n=2$", body=second)
    assert client_of(proxy).tags("a/b") == ["1", "2", "3"]


def test_a_blob_is_mounted_from_another_repository(client: Client, proxy: FaultProxy, client_of: MakeClient) -> None:
    send(client)
    mounting = client_of(proxy)
    assert mounting.mount_blob("other", DIGEST, "a/b") is True
    assert content(client, repository="other") == BLOB
    assert mounting.mount_blob("other", MISSING, "a/b") is False
    assert proxy.uploaded() == 0


def test_the_upload_that_a_failed_mount_began_is_ended(client: Client, registry: Registry) -> None:
    send(client)
    assert client.mount_blob("other", MISSING, "a/b") is False
    assert list(registry.storage.glob("**/_uploads/*/startedat")) == []


# Who asks, and whom one trusts.


def test_tls_by_a_ca_in_dockers_folder_and_a_login(secure_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(CREDENTIALS)
    client = client_of(secure_registry, logins)
    client.ping()
    assert logins.asked == []
    send(client)
    assert content(client) == BLOB
    assert logins.asked == [False]


def test_tls_by_the_bundle_of_the_environment(
    secure_registry: Registry, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert secure_registry.certificate is not None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(secure_registry.certificate.ca))
    client_of(secure_registry, certificates=tmp_path / "none").ping()


def test_an_unknown_ca_is_one_sentence_that_says_where_to_put_it(
    secure_registry: Registry, client_of: MakeClient, tmp_path: Path
) -> None:
    host = secure_registry.host
    (tmp_path / "other" / host).mkdir(parents=True)
    shutil.copy(make_certificate(tmp_path / "another-ca").ca, tmp_path / "other" / host / "ca.crt")
    for folder in (tmp_path / "none", tmp_path / "other"):
        said = refusal(client_of(secure_registry, certificates=folder).ping)
        assert said.startswith(f"the certificate of {host} is not trusted (")
        assert f"put its CA into {folder}/{host}/ca.crt" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"names": ("registry.example",)}, "is for another name (IP address mismatch"),
        ({"until": timedelta(days=-1)}, "is out of date (certificate has expired): have it renewed"),
    ],
)
def test_a_certificate_that_does_not_fit(
    make_registry: MakeRegistry, client_of: MakeClient, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    place = make_registry(certificate=make_certificate(tmp_path / "tls", **options))
    assert f"the certificate of {place.host} {said}" in refusal(client_of(place).ping)


def test_a_file_that_is_no_certificate(client_of: MakeClient, registry: Registry, tmp_path: Path) -> None:
    (tmp_path / registry.host).mkdir()
    (tmp_path / registry.host / "ca.crt").write_text("not a certificate")
    said = refusal(lambda: client_of(registry, certificates=tmp_path))
    assert (
        said == f"{tmp_path}/{registry.host}/ca.crt is no PEM certificate: put the registry's CA there, or remove it."
    )


def test_plain_http_is_for_loopback_only(registry: Registry, monkeypatch: pytest.MonkeyPatch, waits: Waits) -> None:
    monkeypatch.setattr(transport, "is_loopback", lambda _: False)
    client = Client(registry.host, no_login, sleep=waits.sleep)
    assert "and plain HTTP is for loopback addresses only" in refusal(client.ping)


def test_no_proxy_of_the_environment_is_asked_for_this_machine(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert client.tags("a/b") == []


def test_other_hosts_are_asked_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, waits: Waits
) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@127.0.0.1:9")
    said = refusal(Client("registry.example", no_login, sleep=waits.sleep).ping)
    assert said == (
        "the proxy of the environment does not let registry.example be reached (Connection refused): look at "
        "HTTPS_PROXY, or put the host into NO_PROXY."
    )


def test_a_login_of_netrc_is_not_used(
    secure_registry: Registry, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login AWS password {CREDENTIALS.password.replace(' ', '')}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    said = refusal(lambda: client_of(secure_registry).tags("a/b"))
    assert said == (
        f"{secure_registry.host} asks for a name and a password, and none are known: log in with `docker login "
        f"{secure_registry.host}`."
    )


def test_a_login_that_is_refused_is_renewed_once(secure_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(Credentials("AWS", "old"), CREDENTIALS)
    assert client_of(secure_registry, logins).tags("a/b") == []
    assert logins.asked == [False, True]


def test_a_login_that_stays_refused_is_one_sentence_without_it(
    secure_registry: Registry, client_of: MakeClient
) -> None:
    logins = Logins(Credentials("AWS", "old-canary"), Credentials("AWS", "new-canary"), CREDENTIALS)
    said = refusal(lambda: client_of(secure_registry, logins).tags("a/b"))
    assert said.startswith(f"{secure_registry.host} does not take this login for the list of tags (UNAUTHORIZED: ")
    assert "canary" not in said
    assert logins.asked == [False, True]


def test_a_token_that_expires_in_the_middle_of_an_upload_is_renewed(
    secure_registry: Registry, make_proxy: MakeProxy, client_of: MakeClient
) -> None:
    proxy = make_proxy(secure_registry, credentials=CREDENTIALS)
    logins = Logins(Credentials("AWS", "first"), Credentials("AWS", "second"))
    client = client_of(proxy, logins)
    proxy.expire(after=PART + 1)
    send(client)
    assert logins.asked == [False, True]
    assert content(client) == BLOB
    assert [each.status for each in proxy.requests if each.method == "PATCH"] == [202, 202, 401, 202, 202]
    assert proxy.uploaded() == len(BLOB) + PART  # the part that was refused went twice


def test_several_threads_renew_a_login_once(
    secure_registry: Registry, make_proxy: MakeProxy, client_of: MakeClient
) -> None:
    proxy = make_proxy(secure_registry, credentials=CREDENTIALS)
    first = Credentials("AWS", "first")
    logins = Logins(first, Credentials("AWS", "second"))
    client = client_of(proxy, logins)
    client.tags("a/b")
    proxy.refuse(first)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: client.tags("a/b"), range(8))) == [[]] * 8
    assert logins.asked == [False, True]


class FakeTokenServer(http.server.BaseHTTPRequestHandler):
    """A token server as Docker Hub has one, for the distribution registry brings none: signs what it is asked for.

    Who names no credentials may pull only.
    """

    key: ClassVar[rsa.RSAPrivateKey]
    chain: ClassVar[list[str]]
    asked: ClassVar[list[dict[str, list[str]]]]
    expected = ""
    lifetime_s = 300

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        self.asked.append(query)
        given = self.headers.get("Authorization")
        if given not in (None, self.expected):
            self.send_error(401)
            return
        access = []
        for scope in query.get("scope", []):
            kind, name, actions = scope.split(":")
            allowed = actions.split(",") if given else ["pull"]
            access.append({"type": kind, "name": name, "actions": allowed})
        now = int(time.time())
        claims = {"iss": "berth", "sub": "", "aud": query["service"][0], "nbf": now - 60, "iat": now, "jti": "1"}
        token = self._signed({**claims, "exp": now + self.lifetime_s, "access": access})
        body = json.dumps({"token": token}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _signed(self, claims: dict[str, Any]) -> str:
        header = {"typ": "JWT", "alg": "RS256", "x5c": self.chain}
        text = ".".join(_base64url(json.dumps(each).encode()) for each in (header, claims))
        return f"{text}.{_base64url(self.key.sign(text.encode(), PKCS1v15(), hashes.SHA256()))}"

    def log_message(self, *_: object) -> None:
        pass


def _base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on this machine: its host and port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def token_registry(make_registry: MakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that asks for Bearer tokens of FakeTokenServer."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "token server")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    bundle = tmp_path / "token.crt"
    bundle.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    chain = [base64.b64encode(made.public_bytes(serialization.Encoding.DER)).decode()]
    pair = f"{CREDENTIALS.username}:{CREDENTIALS.password}".encode()
    values = {"key": key, "chain": chain, "asked": [], "expected": f"Basic {base64.b64encode(pair).decode()}"}
    for attribute, value in values.items():
        monkeypatch.setattr(FakeTokenServer, attribute, value, raising=False)
    with serving(FakeTokenServer) as host:
        token = {"realm": f"http://{host}/token", "service": "berth", "issuer": "berth", "rootcertbundle": str(bundle)}
        yield make_registry(token=token)


def test_bearer_tokens_of_a_token_server(token_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(CREDENTIALS)
    client = client_of(token_registry, logins)
    send(client)
    assert content(client) == BLOB
    assert client.mount_blob("other", DIGEST, "a/b") is True
    assert logins.asked == [False]
    # The registry writes actions in any order.
    scopes = [
        {scope.rpartition(":")[0]: set(scope.rpartition(":")[2].split(",")) for scope in query["scope"]}
        for query in FakeTokenServer.asked
    ]
    assert scopes == [
        {"repository:a/b": {"pull", "push"}},
        {"repository:a/b": {"pull"}},
        {"repository:other": {"pull", "push"}, "repository:a/b": {"pull"}},
    ]


def test_a_bearer_token_that_has_expired_is_fetched_again(
    token_registry: Registry, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTokenServer, "lifetime_s", -120)
    client = client_of(token_registry, Logins(CREDENTIALS))
    assert "does not take this login" in refusal(lambda: client.tags("a/b"))
    monkeypatch.setattr(FakeTokenServer, "lifetime_s", 300)
    assert client.tags("a/b") == []


def test_without_a_login_a_token_server_lets_pull_and_not_push(token_registry: Registry, client_of: MakeClient) -> None:
    send(client_of(token_registry, Logins(CREDENTIALS)))
    nobody = client_of(token_registry)
    assert content(nobody) == BLOB
    assert "does not take this login for the push of" in refusal(lambda: send(nobody, "other"))


def test_a_token_server_that_refuses(token_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(Credentials("AWS", "old"), Credentials("AWS", "new"))
    said = refusal(lambda: client_of(token_registry, logins).tags("a/b"))
    assert f"of {token_registry.host} gives no token (401" in said
    assert logins.asked == [False, True]


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        ("Negotiate", "asks for a login of the kind negotiate, and only Basic and Bearer are known here"),
        ("", "asks for a login of the kind that it does not say"),
        ('Bearer realm="http://evil.example/token"', "to the token server http://evil.example/token, which is"),
        ('Bearer realm="https://[x/token"', "to the token server https://[x/token, which is no https address"),
        ('Bearer service="x"', "to the token server without address, which is no https address"),
    ],
)
def test_challenges_that_get_no_login(proxy: FaultProxy, client_of: MakeClient, challenge: str, said: str) -> None:
    logins = Logins(CREDENTIALS)
    proxy.answer(401, skip=1, times=9, headers={"WWW-Authenticate": challenge})
    assert said in refusal(lambda: client_of(proxy, logins).tags("a/b"))
    assert logins.asked == []


class Store(http.server.BaseHTTPRequestHandler):
    """A store of blobs, as S3 behind ECR and Docker Hub: refuses whoever brings a login."""

    seen: ClassVar[list[tuple[str, str | None, str | None]]] = []

    def do_GET(self) -> None:
        authorization, wanted = self.headers.get("Authorization"), self.headers.get("Range")
        self.seen.append((self.path, authorization, wanted))
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(400 if authorization else 206 if wanted else 200)
        self.send_header("Content-Range", f"bytes {start}-{len(BLOB) - 1}/{len(BLOB)}")
        self.send_header("Content-Length", str(len(BLOB) - start))
        self.end_headers()
        self.wfile.write(BLOB[start:])

    def log_message(self, *_: object) -> None:
        pass


def test_no_login_follows_a_redirect_to_another_host(
    secure_registry: Registry, make_proxy: MakeProxy, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "seen", [])
    proxy = make_proxy(secure_registry)
    client = client_of(proxy, Logins(CREDENTIALS))
    client.tags("a/b")  # logged in from here on
    with serving(Store) as store:
        proxy.answer(307, path=f"blobs/{DIGEST}", times=2, headers={"Location": f"http://{store}/blob?signed=1"})
        assert content(client) == BLOB
        assert content(client, 1000) == BLOB[1000:]
    assert Store.seen == [("/blob?signed=1", None, None), ("/blob?signed=1", None, "bytes=1000-")]
    assert proxy.requests[-1].authorization.startswith("Basic ")


def test_a_challenge_of_another_host_gets_nothing(
    registry: Registry,
    make_registry: MakeRegistry,
    certificate: Certificate,
    make_proxy: MakeProxy,
    client_of: MakeClient,
) -> None:
    other = make_registry(credentials=CREDENTIALS)
    proxy = make_proxy(registry)
    logins = Logins(CREDENTIALS)
    proxy.answer(307, path="blobs/", times=9, headers={"Location": f"{other.url}/v2/a/b/blobs/{DIGEST}"})
    assert "does not take this login for the read of" in refusal(lambda: content(client_of(proxy, logins)))
    assert logins.asked == []


# Faults of the network and of the registry.


@pytest.fixture
def until_noticed(registry: Registry, waits: Waits) -> Callable[[float], None]:
    """A `sleep` as long as the registry takes to notice that a connection is gone; a real wait is longer than that."""

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        registry.until_logged('err.detail="client disconnected"')

    return sleep


def test_a_drop_in_the_middle_of_a_part_sends_the_blob_again(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, until_noticed: Callable[[float], None]
) -> None:
    """For the distribution registry forgets an upload that has another length than it has signed."""
    proxy.drop(after=50_000, skip=2)
    arrived: list[int] = []
    sent = send(client_of(proxy, sleep=until_noticed), sent=arrived.append)
    assert content(client_of(proxy)) == BLOB
    assert arrived == [0, PART, 2 * PART, 0, PART, 2 * PART, 3 * PART, len(BLOB), len(BLOB)]
    assert proxy.uploaded() == 2 * PART + 50_000 + len(BLOB)
    assert sent == 3 * PART + len(BLOB)
    assert waits == [1]


def test_a_drop_between_two_parts_sends_nothing_again(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, until_noticed: Callable[[float], None]
) -> None:
    proxy.drop(after=0, skip=2)
    arrived: list[int] = []
    send(client_of(proxy, sleep=until_noticed), sent=arrived.append)
    assert content(client_of(proxy)) == BLOB
    assert arrived == [0, PART, 2 * PART, 2 * PART, 3 * PART, len(BLOB), len(BLOB)]
    assert proxy.uploaded() == len(BLOB)
    assert waits == [1]


def test_an_answer_that_is_lost_sends_the_blob_again(proxy: FaultProxy, client_of: MakeClient, waits: Waits) -> None:
    """For the distribution registry has signed the bytes that it has into the address that was lost with it."""
    proxy.drop(after=None, method="PATCH", skip=1)
    send(client_of(proxy))
    assert content(client_of(proxy)) == BLOB
    assert proxy.uploaded() == 2 * PART + len(BLOB)
    assert waits == [1]


def test_an_upload_goes_on_from_what_the_registry_says_it_has(
    proxy: FaultProxy, client_of: MakeClient, until_noticed: Callable[[float], None]
) -> None:
    """Where that is wrong, as a proxy's word here, the digest says so at the end, and the blob is sent anew."""
    client = client_of(proxy, sleep=until_noticed)
    asked: list[int] = []

    def open_at(offset: int) -> Iterator[bytes]:
        asked.append(offset)
        return open_blob(offset)

    proxy.drop(after=0, method="PATCH", skip=1)
    proxy.answer(204, method="GET", path="uploads/", headers={"Range": f"0-{PART + 999}"})
    client.upload_blob("a/b", DIGEST, len(BLOB), open_at)
    assert asked == [0, PART + 1000, 2 * PART, 0]
    assert content(client) == BLOB


def test_the_last_answer_that_is_lost_is_found_out(proxy: FaultProxy, client_of: MakeClient) -> None:
    proxy.drop(after=None, method="PUT")
    assert send(client_of(proxy)) == len(BLOB)
    assert content(client_of(proxy)) == BLOB
    assert proxy.uploaded() == len(BLOB)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_part_that_is_put_off_goes_on_from_there(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, status: int
) -> None:
    proxy.answer(status, method="PATCH", skip=1, times=2)
    send(client_of(proxy))
    assert content(client_of(proxy)) == BLOB
    assert proxy.uploaded() == len(BLOB) + 2 * PART
    assert waits == [1, 2]


def test_the_registry_says_how_long_to_wait(proxy: FaultProxy, client_of: MakeClient, waits: Waits) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    proxy.answer(429, path="tags", headers={"Retry-After": "7"})
    proxy.answer(503, path="tags", skip=1, headers={"Retry-After": date})
    proxy.answer(503, path="tags", skip=2, headers={"Retry-After": "soon"})
    told: list[str] = []
    body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}'
    proxy.answer(429, path="tags", skip=3, headers={"Retry-After": "0.5"}, body=body)
    assert client_of(proxy, say=told.append).tags("a/b") == []
    assert [waits[0], waits[2], waits[3]] == [7, 4, 0.5]
    assert 50 < waits[1] <= 60
    assert told[3] == f"{proxy.host}: TOOMANYREQUESTS: slow down; trying again in 0.5 s"


def test_a_wait_that_is_too_long_is_left_to_the_user(proxy: FaultProxy, client_of: MakeClient, waits: Waits) -> None:
    proxy.answer(429, path="tags", headers={"Retry-After": "3600"})
    said = refusal(lambda: client_of(proxy).tags("a/b"))
    assert said.startswith(f"{proxy.host} asks to be left alone for 3600 s (429): run this again after that")
    assert waits == []


@pytest.mark.parametrize(
    ("status", "said"),
    [(429, "is asked too often (429)"), (503, "failed at the list of tags (503)")],
)
def test_what_does_not_pass_is_given_up(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, status: int, said: str
) -> None:
    proxy.answer(status, path="tags", times=99)
    assert said in refusal(lambda: client_of(proxy).tags("a/b"))
    assert waits == list(transport.PAUSES_S)


def test_an_upload_that_never_gets_further_is_given_up(proxy: FaultProxy, client_of: MakeClient, waits: Waits) -> None:
    proxy.drop(after=10, skip=2, times=99)
    assert "can't be reached" in refusal(lambda: send(client_of(proxy)))
    assert waits == list(transport.PAUSES_S)


def test_a_read_goes_on_where_it_was_dropped(client: Client, client_of: MakeClient, waits: Waits) -> None:
    send(client)
    with serving(Halves) as host:
        reading = Client(host, no_login, sleep=waits.sleep)
        assert content(reading) == BLOB
        assert Halves.ranges == [None, "bytes=325000-", "bytes=487500-"]
    assert waits == [1, 1]


class Halves(http.server.BaseHTTPRequestHandler):
    """A registry whose first two answers of a blob end in the middle of what is left."""

    ranges: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        blob = self.path.endswith(DIGEST)
        wanted = self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        body = BLOB[start:] if blob else b"{}"
        if blob:
            self.ranges.append(wanted)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Range", f"bytes {start}-{len(BLOB) - 1}/{len(BLOB)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if blob and len(self.ranges) < 3 else body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_registry_without_ranges_is_read_from_its_beginning(client: Client, proxy: FaultProxy) -> None:
    send(client)
    proxy.answer(200, path="blobs/", times=9, body=BLOB)
    assert content(Client(proxy.host, no_login), 70_000) == BLOB[70_000:]


def test_a_registry_that_is_killed_and_started_again(
    registry: Registry, client_of: MakeClient, proxy: FaultProxy
) -> None:
    """Killed between two parts: what has arrived is not sent again."""

    def sent(arrived: int) -> None:
        if arrived == 2 * PART and registry.process is not None and not killed:
            killed.append(arrived)
            registry.kill()

    killed: list[int] = []

    def start_again(_: float) -> None:
        if registry.process is None:
            registry.start()

    client = client_of(proxy, sleep=start_again)
    send(client, sent=sent)
    assert killed == [2 * PART]
    assert content(client) == BLOB
    assert proxy.uploaded() == len(BLOB)


def test_a_full_disk_is_said_at_once_and_the_next_run_ends_well(
    make_registry: MakeRegistry, client_of: MakeClient, waits: Waits
) -> None:
    place = make_registry(disk_bytes=8 << 20)
    client = client_of(place)
    client.put_blob("a/b", b"a repository")
    place.fill(2 * PART)
    assert refusal(lambda: send(client)) == (
        f"the disk of {place.host} is full (the push of {DIGEST[:19]} failed): have room made there, then run this "
        "again."
    )
    assert waits == []
    place.make_room()
    send(client)
    assert content(client) == BLOB


# What a registry says no to, and what is none.


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (403, '{"errors":[{"code":"DENIED","message":"no identity-based policy allows it"}]}', "denies the push of"),
        (403, "", "denies the push of"),
        (404, '{"errors":[{"code":"NAME_UNKNOWN","message":"no such repository"}]}', "has no repository a/b (NAME"),
        (404, "404 page not found", "/a/b is not there for the push of"),
        (405, '{"errors":[{"code":"UNSUPPORTED","message":"read only"}]}', "refuses the push of"),
        (413, "<html>too large</html>", "something in front of"),
        (507, "", "the disk of"),
        (400, '{"errors":[{"code":"DIGEST_INVALID","message":"x"}]}', "got other bytes at the push of"),
        (200, "<html>log in here</html>", "refuses the push of sha256:"),
    ],
)
def test_a_push_that_is_refused(
    proxy: FaultProxy, client_of: MakeClient, waits: Waits, status: int, body: str, said: str
) -> None:
    proxy.answer(status, method="PATCH", skip=1, times=99, body=body.encode())
    assert said in refusal(lambda: send(client_of(proxy)))
    assert waits == []


def test_a_repository_that_is_deleted_meanwhile(proxy: FaultProxy, client_of: MakeClient) -> None:
    body = b'{"errors":[{"code":"NAME_UNKNOWN","message":"The repository does not exist in the registry"}]}'
    proxy.answer(404, method="PUT|POST|PATCH", skip=2, times=99, body=body)
    said = refusal(lambda: send(client_of(proxy)))
    assert "has no repository a/b (NAME_UNKNOWN: The repository does not exist in the registry): create it" in said
    proxy.forget()
    send(client_of(proxy))
    assert content(client_of(proxy)) == BLOB


def test_an_immutable_tag_is_refused_with_the_reason(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image, other = made_images.image(), made_images.image(seed=9)
    made_images.put(client, "a/b", "1", image)
    made_images.put_blobs(client, "a/b", other)
    message = (
        "The image tag '1' already exists in the 'a/b' repository and cannot be overwritten because the tag is "
        "immutable."
    )
    body = json.dumps({"errors": [{"code": "TAG_INVALID", "message": message}]}).encode()  # ECR's words
    proxy.answer(400, method="PUT", path="manifests/1", times=9, body=body)
    said = refusal(lambda: client.put_manifest("a/b", "1", other.manifest))
    assert said.startswith(f"{proxy.host}/a/b refuses the tag 1 (TAG_INVALID: The image tag '1' already exists")
    assert said.endswith("its tags can't be moved, take another --tag, for example of a new version.")
    assert client.put_manifest("a/b", "1", image.manifest) == image.manifest.digest


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (200, {"Content-Type": "text/html"}, b"<!DOCTYPE html><title>a login portal</title>"),
        (404, {}, b"nothing here"),
        (302, {"Location": "https://127.0.0.1:9/login"}, b""),
    ],
)
def test_what_is_no_registry(
    proxy: FaultProxy, client_of: MakeClient, status: int, headers: dict[str, str], body: bytes
) -> None:
    proxy.answer(status, path="^/v2/$", times=9, headers=headers, body=body)
    assert refusal(client_of(proxy).ping).startswith(f"{proxy.host} ")


def test_nobody_listens(waits: Waits) -> None:
    host = f"127.0.0.1:{free_port()}"
    assert refusal(Client(host, no_login, sleep=waits.sleep).ping) == (
        f"{host} can't be reached (Connection refused): see that the name and the port are right and that the registry "
        "runs, then run this again; what arrived is not sent again."
    )
    assert waits == []


def test_a_bundle_of_the_environment_that_is_not_there(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/bundle")
    said = refusal(Client(registry.host, no_login).ping)
    assert "invalid path: /no/such/bundle): mend" in said


# Registries that lie.


def test_other_bytes_than_the_digest_says(client: Client, registry: Registry, proxy: FaultProxy) -> None:
    send(client)
    (stored,) = registry.storage.glob(f"**/blobs/sha256/*/{DIGEST[7:]}/data")
    stored.write_bytes(BLOB[:-1] + b"x")
    said = refusal(lambda: content(client))
    assert said.startswith(f"{registry.host} gave sha256:")
    assert f"for {DIGEST}: what it has is damaged" in said


def test_another_manifest_than_was_asked_for(proxy: FaultProxy, client_of: MakeClient) -> None:
    client = client_of(proxy)
    image, other = made_images.image(), made_images.image(seed=9)
    made_images.put(client, "a/b", "1", image)
    lie = {"Content-Type": other.manifest.media_type, "Docker-Content-Digest": image.manifest.digest}
    proxy.answer(200, method="GET", path="manifests", times=2, headers=lie, body=other.manifest.raw)
    for reference in ("1", image.manifest.digest):
        said = refusal(lambda reference=reference: client.manifest("a/b", reference))  # type: ignore[misc]
        assert f"gave {other.manifest.digest} for {image.manifest.digest}" in said


def test_another_digest_than_was_put(proxy: FaultProxy, client_of: MakeClient) -> None:
    image = made_images.image()
    proxy.answer(201, method="PUT", path="manifests", headers={"Docker-Content-Digest": MISSING})
    said = refusal(lambda: client_of(proxy).put_manifest("a/b", "1", image.manifest))
    assert f"gave {MISSING} for {image.manifest.digest}" in said


@pytest.mark.parametrize(
    ("source", "said"),
    [(BLOB[:-1], "ends after 649999 of 650000 bytes"), (BLOB + b"x", "has more than its 650000 bytes")],
)
def test_a_source_of_another_size(client: Client, source: bytes, said: str) -> None:
    open_at = lambda offset: iter((source[offset:],))  # noqa: E731
    assert said in refusal(lambda: client.upload_blob("a/b", DIGEST, len(BLOB), open_at))
    assert client.blob_size("a/b", DIGEST) is None


def test_a_source_of_other_bytes(client: Client, waits: Waits) -> None:
    wrong = BLOB[:-1] + b"x"
    said = refusal(lambda: client.upload_blob("a/b", DIGEST, len(BLOB), lambda offset: iter((wrong[offset:],))))
    assert "got other bytes at the push of" in said
    assert waits == []


def test_an_answer_without_an_end_is_not_kept(
    proxy: FaultProxy, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LARGEST_ANSWER", 1 << 20)
    proxy.answer(200, path="manifests", body=bytes(3 << 20))
    assert "with more than 1 MiB" in refusal(lambda: client_of(proxy).manifest("a/b", "1"))


def test_uploads_that_leave_tls_are_refused(
    secure_registry: Registry, make_proxy: MakeProxy, client_of: MakeClient, certificate: Certificate, tmp_path: Path
) -> None:
    proxy = make_proxy(secure_registry, certificate=certificate.certificate, key=certificate.key)
    (tmp_path / "certs.d" / proxy.host).mkdir(parents=True)
    shutil.copy(certificate.ca, tmp_path / "certs.d" / proxy.host / "ca.crt")
    client = client_of(proxy, Logins(CREDENTIALS), certificates=tmp_path / "certs.d")
    proxy.answer(202, method="POST", headers={"Location": f"http://{proxy.host}/v2/a/b/blobs/uploads/1"})
    assert "is asked over HTTPS and sends on to http://" in refusal(lambda: send(client))
    send(client)
    assert content(client) == BLOB
