"""Logins of our client: Basic as for ECR, Bearer tokens, and hosts that must not get a login."""

import base64
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from berth.ecr.registry.challenge import Credentials
from berth.ecr.registry.client import Registry as Client
from tests.doubles.certificates import Certificate, make_certificate
from tests.doubles.http_server import QuietHandler, serving
from tests.registry.blobs import BLOB, DIGEST, PART, content, send
from tests.registry.conftest import CREDENTIALS, Logins, MakeClient, MakeProxy, MakeRegistry, refusal
from tests.registry.fault_proxy import FaultProxy
from tests.registry.registries import Registry
from tests.registry.servers import FakeTokenServer

pytestmark = pytest.mark.usefixtures("small_parts")


def test_netrc_login_is_not_used(
    secure_registry: Registry, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login AWS password {CREDENTIALS.password.replace(' ', '')}\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    sentence = refusal(lambda: client_of(secure_registry).tags("a/b"))
    assert sentence == (
        f"{secure_registry.host} asks for a user name and a password: log in with `docker login "
        f"{secure_registry.host}`."
    )


def test_refused_login_is_renewed_once(secure_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(Credentials("AWS", "old"), CREDENTIALS)
    assert client_of(secure_registry, logins).tags("a/b") == []
    assert logins.renewals == [False, True]


def test_error_for_login_refused_twice_omits_the_password(secure_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(Credentials("AWS", "old-canary"), Credentials("AWS", "new-canary"), CREDENTIALS)
    sentence = refusal(lambda: client_of(secure_registry, logins).tags("a/b"))
    assert sentence.startswith(
        f"{secure_registry.host} does not accept this login for the list of tags (UNAUTHORIZED: "
    )
    assert "canary" not in sentence
    assert logins.renewals == [False, True]


def test_token_that_expires_during_an_upload_is_renewed(
    secure_registry: Registry, make_proxy: MakeProxy, client_of: MakeClient
) -> None:
    proxy = make_proxy(secure_registry, credentials=CREDENTIALS)
    logins = Logins(Credentials("AWS", "first"), Credentials("AWS", "second"))
    client = client_of(proxy, logins)
    proxy.expire(after=PART + 1)
    send(client)
    assert logins.renewals == [False, True]
    assert content(client) == BLOB
    assert [each.status for each in proxy.requests if each.method == "PATCH"] == [202, 202, 401, 202, 202]
    assert proxy.uploaded() == len(BLOB) + PART  # the refused part was sent twice


def test_threads_renew_a_refused_login_once(
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
    assert logins.renewals == [False, True]


@pytest.fixture
def token_registry(make_registry: MakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry that requires Bearer tokens of FakeTokenServer."""
    key = rsa.generate_private_key(65537, 2048)
    made = make_certificate(tmp_path / "token", key=key)
    chain = ["".join(made.certificate.read_text().splitlines()[1:-1])]
    pair = f"{CREDENTIALS.username}:{CREDENTIALS.password}".encode()
    values = {"key": key, "chain": chain, "queries": [], "expected": f"Basic {base64.b64encode(pair).decode()}"}
    for attribute, value in values.items():
        monkeypatch.setattr(FakeTokenServer, attribute, value, raising=False)
    with serving(FakeTokenServer) as url:
        token = {"realm": f"{url}/token", "service": "berth", "issuer": "berth", "rootcertbundle": str(made.ca)}
        yield make_registry(token=token)


def test_bearer_tokens_are_requested_per_scope(token_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(CREDENTIALS)
    client = client_of(token_registry, logins)
    send(client)
    assert content(client) == BLOB
    assert client.mount_blob("other", DIGEST, "a/b") is True
    assert logins.renewals == [False]
    # The registry writes actions in any order.
    scopes = [
        {scope.rpartition(":")[0]: set(scope.rpartition(":")[2].split(",")) for scope in query["scope"]}
        for query in FakeTokenServer.queries
    ]
    assert scopes == [
        {"repository:a/b": {"pull", "push"}},
        {"repository:a/b": {"pull"}},
        {"repository:other": {"pull", "push"}, "repository:a/b": {"pull"}},
    ]


def test_expired_bearer_token_is_fetched_again(
    token_registry: Registry, client_of: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTokenServer, "lifetime_s", -120)
    client = client_of(token_registry, Logins(CREDENTIALS))
    assert "does not accept this login" in refusal(lambda: client.tags("a/b"))
    monkeypatch.setattr(FakeTokenServer, "lifetime_s", 300)
    assert client.tags("a/b") == []


def test_anonymous_bearer_token_allows_pull_only(token_registry: Registry, client_of: MakeClient) -> None:
    send(client_of(token_registry, Logins(CREDENTIALS)))
    nobody = client_of(token_registry)
    assert content(nobody) == BLOB
    assert "does not accept this login for the push of" in refusal(lambda: send(nobody, "other"))


def test_error_of_token_server_that_refuses_the_login(token_registry: Registry, client_of: MakeClient) -> None:
    logins = Logins(Credentials("AWS", "old"), Credentials("AWS", "new"))
    sentence = refusal(lambda: client_of(token_registry, logins).tags("a/b"))
    assert f"of {token_registry.host} returns no token (401" in sentence
    assert logins.renewals == [False, True]


@pytest.mark.parametrize(
    ("challenge", "sentence"),
    [
        ("Negotiate", "asks for a login with the scheme negotiate, but only Basic and Bearer are supported"),
        ("", "asks for a login with the scheme (none)"),
        ('Bearer realm="http://evil.example/token"', "to the token server http://evil.example/token, which is"),
        ('Bearer realm="https://[x/token"', "to the token server https://[x/token, which is not an https address"),
        ('Bearer service="x"', "to the token server without address, which is not an https address"),
    ],
)
def test_unsupported_challenges_get_no_login(
    proxy: FaultProxy, client_of: MakeClient, challenge: str, sentence: str
) -> None:
    logins = Logins(CREDENTIALS)
    proxy.answer(401, skip=1, times=9, headers={"WWW-Authenticate": challenge})
    assert sentence in refusal(lambda: client_of(proxy, logins).tags("a/b"))
    assert logins.renewals == []


class Store(QuietHandler):
    """A store of blobs, like S3 behind ECR and Docker Hub: refuses requests with a login."""

    seen: ClassVar[list[tuple[str, str | None, str | None]]] = []

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization")
        self.seen.append((self.path, authorization, self.headers.get("Range")))
        self.answer(400 if authorization else 200, BLOB)


def test_redirect_to_another_host_gets_no_login(
    secure_registry: Registry,
    make_proxy: MakeProxy,
    client_of: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Not from netrc either: requests reads it again for the host of each redirect, and its `default` entry matches
    every other host.
    """
    monkeypatch.setattr(Store, "seen", [])
    (tmp_path / "netrc").write_text("machine localhost login bob password named\ndefault login alice password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    proxy = make_proxy(secure_registry)
    client = client_of(proxy, Logins(CREDENTIALS))
    client.tags("a/b")  # from here on the client is logged in
    with serving(Store) as store:
        for url in (store, store.replace("127.0.0.1", "localhost")):
            proxy.answer(307, path=f"blobs/{DIGEST}", headers={"Location": f"{url}/blob?signed=1"})
            assert content(client) == BLOB
    assert Store.seen == [("/blob?signed=1", None, None)] * 2
    assert proxy.requests[-1].authorization.startswith("Basic ")


@pytest.mark.parametrize(
    ("path", "ask"),
    [
        pytest.param("blobs/", content, id="blob"),
        pytest.param("manifests/", lambda client: client.manifest("a/b", "1.0"), id="manifest-by-tag"),
        pytest.param("tags/", lambda client: client.tags("a/b"), id="tags"),
        pytest.param("^/v2/$", lambda client: client.ping(), id="first-request"),
    ],
)
def test_redirect_from_https_to_http_is_refused(
    path: str,
    ask: Callable[[Client], object],
    make_proxy: MakeProxy,
    secure_registry: Registry,
    certificate: Certificate,
    client_of: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(Store, "seen", [])
    proxy = make_proxy(secure_registry, certificate=certificate.certificate, key=certificate.key)
    (tmp_path / "certs.d" / proxy.host).mkdir(parents=True)
    shutil.copy(certificate.ca, tmp_path / "certs.d" / proxy.host / "ca.crt")
    client = client_of(proxy, Logins(CREDENTIALS), certificates=tmp_path / "certs.d")
    with serving(Store) as store:
        proxy.answer(307, path=path, times=9, headers={"Location": f"{store}/plain"})
        sentence = refusal(lambda: ask(client))
    assert sentence == (
        f"{proxy.host} redirects from HTTPS to {store}/plain: let the proxy in front of it set X-Forwarded-Proto."
    )
    assert Store.seen == []


def test_redirect_of_token_server_to_http_is_refused(
    make_registry: MakeRegistry,
    make_proxy: MakeProxy,
    registry: Registry,
    certificate: Certificate,
    client_of: MakeClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(Store, "seen", [])
    place = make_proxy(registry)
    tokens = make_proxy(registry, certificate=certificate.certificate, key=certificate.key)
    (tmp_path / "certs.d" / place.host).mkdir(parents=True)
    shutil.copy(certificate.ca, tmp_path / "certs.d" / place.host / "ca.crt")
    place.answer(401, skip=1, times=9, headers={"WWW-Authenticate": f'Bearer realm="https://{tokens.host}/token"'})
    client = client_of(place, Logins(CREDENTIALS), certificates=tmp_path / "certs.d")
    with serving(Store) as store:
        tokens.answer(307, path="/token", times=9, headers={"Location": f"{store}/token"})
        sentence = refusal(lambda: client.tags("a/b"))
    assert sentence.startswith(f"{tokens.host} redirects from HTTPS to {store}/token")
    assert Store.seen == []


def test_challenge_of_another_host_gets_no_login(
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
    assert "does not accept this login for the read of" in refusal(lambda: content(client_of(proxy, logins)))
    assert logins.renewals == []
