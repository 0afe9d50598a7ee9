"""Log-in challenges of registries; a login is sent only to trusted token servers."""

from collections.abc import Callable

import pytest

from berth.common.errors import UserError
from berth.ecr.registry.challenge import Authenticator, Credentials, parse, scopes_of
from berth.ecr.registry.errors import RegistryAnswer

SECRET = Credentials("AWS", "canary")
HEADER = "Basic QVdTOmNhbmFyeQ=="
BEARER = 'Bearer realm="https://auth.example/token?x=1",service="reg, istry",scope="repository:a/b:pull"'


@pytest.mark.parametrize(
    ("header", "parsed"),
    [
        ("", ("", {})),
        ("Basic", ("basic", {})),
        ('Basic realm="a, b"', ("basic", {"realm": "a, b"})),
        ('bearer Realm="x",scope="a b"', ("bearer", {"realm": "x", "scope": "a b"})),
        ("Bearer ,,=,", ("bearer", {})),
    ],
)
def test_parse_challenge(header: str, parsed: tuple[str, dict[str, str]]) -> None:
    scheme, parameters = parse(header)
    assert (scheme, {key: value for key, value in parameters.items() if key}) == parsed


def make_authenticator(
    answer: Callable[[str, str | None], RegistryAnswer], *logins: Credentials | None
) -> tuple[Authenticator, list[bool]]:
    renewals: list[bool] = []
    left = list(logins)

    def login(*, renew: bool) -> Credentials | None:
        renewals.append(renew)
        return left.pop(0)

    return Authenticator("host", login, answer, lambda url: url.startswith("https:")), renewals


def no_token_server(url: str, authorization: str | None) -> RegistryAnswer:
    raise AssertionError("the token server got a request")


def test_basic_login_is_fetched_once_for_all_scopes() -> None:
    authenticator, renewals = make_authenticator(no_token_server, SECRET)
    assert authenticator.header(scopes_of("a")) is None
    authenticator.authenticate("Basic realm=x", scopes_of("a"), None)
    assert authenticator.header(scopes_of("a")) == authenticator.header(scopes_of("b", "pull,push")) == HEADER
    authenticator.authenticate("Basic realm=x", scopes_of("b", "pull,push"), None)  # for a request that was sent before
    assert renewals == [False]


def test_token_is_requested_per_scope_with_the_challenges_parameters() -> None:
    urls = []

    def answer(url: str, authorization: str | None) -> RegistryAnswer:
        urls.append((url, authorization))
        return RegistryAnswer(200, {}, b'{"access_token": "t%d"}' % len(urls))

    authenticator, renewals = make_authenticator(answer, SECRET)
    authenticator.authenticate(BEARER, scopes_of("a/b"), None)
    assert authenticator.header(scopes_of("a/b")) == "Bearer t1"
    assert authenticator.header(scopes_of("a/b", "pull,push")) is None
    authenticator.authenticate(BEARER, (*scopes_of("c", "pull,push"), *scopes_of("a/b")), None)
    base = "https://auth.example/token?x=1&service=reg%2C+istry&scope=repository%3Aa%2Fb%3Apull"
    assert urls == [(base, HEADER), (f"{base}&scope=repository%3Ac%3Apull%2Cpush", HEADER)]
    assert renewals == [False]


def test_token_server_without_tls_gets_no_login() -> None:
    authenticator, renewals = make_authenticator(no_token_server, SECRET)
    with pytest.raises(UserError, match=r"to the token server http://auth\.example/token, which is not an https"):
        authenticator.authenticate('Bearer realm="http://u:p@auth.example/token"', scopes_of("a"), None)
    assert renewals == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"token": ""}', b'{"token": 1}', b'{"token": "a\\r\\nX-Header: b"}', b"<html>"]
)
def test_error_for_token_server_without_token(body: bytes) -> None:
    authenticator, _ = make_authenticator(lambda url, authorization: RegistryAnswer(200, {}, body), SECRET)
    with pytest.raises(UserError, match=r"the token server auth\.example of host answers without a token"):
        authenticator.authenticate(BEARER, scopes_of("a"), None)
    assert authenticator.header(scopes_of("a")) is None


def test_error_without_stored_login() -> None:
    authenticator, _ = make_authenticator(no_token_server, None)
    with pytest.raises(UserError, match="asks for a user name and a password: log in with"):
        authenticator.authenticate("Basic", scopes_of("a"), None)


def test_public_repository_needs_no_login() -> None:
    authorizations = []

    def answer(url: str, authorization: str | None) -> RegistryAnswer:
        authorizations.append(authorization)
        return RegistryAnswer(200, {}, b'{"token": "t"}') if "a%2Fb" in url else RegistryAnswer(401)

    authenticator, _ = make_authenticator(answer, None)
    authenticator.authenticate(BEARER, scopes_of("a/b"), None)
    assert authenticator.header(scopes_of("a/b")) == "Bearer t"
    with pytest.raises(UserError, match="asks for a user name and a password: log in with"):
        authenticator.authenticate('Bearer realm="https://auth.example/token"', scopes_of("c"), None)
    assert authorizations == [None, None]


def test_error_of_token_server_omits_the_password() -> None:
    authenticator, renewals = make_authenticator(lambda url, authorization: RegistryAnswer(401), SECRET, SECRET)
    with pytest.raises(UserError) as refusal:
        authenticator.authenticate(BEARER, scopes_of("a"), None)
    assert renewals == [False, True]
    assert "canary" not in str(refusal.value)
    assert HEADER not in str(refusal.value)
