"""What registries ask for, and who gets to see a login."""

from collections.abc import Callable

import pytest

from berth.common.errors import UserError
from berth.ecr.registry.challenge import Authenticator, Credentials, parse, pull_scopes, push_scopes
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
def test_challenges(header: str, parsed: tuple[str, dict[str, str]]) -> None:
    scheme, parameters = parse(header)
    assert (scheme, {key: value for key, value in parameters.items() if key}) == parsed


def authority(
    answer: Callable[[str, str | None], RegistryAnswer], *logins: Credentials | None
) -> tuple[Authenticator, list[bool]]:
    asked: list[bool] = []
    left = list(logins)

    def login(*, renew: bool) -> Credentials | None:
        asked.append(renew)
        return left.pop(0)

    return Authenticator("host", login, answer, lambda url: url.startswith("https:")), asked


def nobody(url: str, authorization: str | None) -> RegistryAnswer:
    raise AssertionError("no token server is asked")


def test_basic_is_asked_for_once_for_all_scopes() -> None:
    found, asked = authority(nobody, SECRET)
    assert found.header(pull_scopes("a")) is None
    found.authenticate("Basic realm=x", pull_scopes("a"), None)
    assert found.header(pull_scopes("a")) == found.header(push_scopes("b")) == HEADER
    found.authenticate("Basic realm=x", push_scopes("b"), None)  # of a request that went out before
    assert asked == [False]


def test_a_token_is_of_a_scope_and_asks_for_what_the_registry_names() -> None:
    urls = []

    def answer(url: str, authorization: str | None) -> RegistryAnswer:
        urls.append((url, authorization))
        return RegistryAnswer(200, {}, b'{"access_token": "t%d"}' % len(urls))

    found, asked = authority(answer, SECRET)
    found.authenticate(BEARER, pull_scopes("a/b"), None)
    assert found.header(pull_scopes("a/b")) == "Bearer t1"
    assert found.header(push_scopes("a/b")) is None
    found.authenticate(BEARER, (*push_scopes("c"), *pull_scopes("a/b")), None)
    base = "https://auth.example/token?x=1&service=reg%2C+istry&scope=repository%3Aa%2Fb%3Apull"
    assert urls == [(base, HEADER), (f"{base}&scope=repository%3Ac%3Apull%2Cpush", HEADER)]
    assert asked == [False]


def test_a_login_goes_to_no_token_server_without_tls() -> None:
    found, asked = authority(nobody, SECRET)
    with pytest.raises(UserError, match=r"to the token server http://auth\.example/token, which is not an https"):
        found.authenticate('Bearer realm="http://u:p@auth.example/token"', pull_scopes("a"), None)
    assert asked == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"token": ""}', b'{"token": 1}', b'{"token": "a\\r\\nX-Header: b"}', b"<html>"]
)
def test_a_token_server_that_gives_no_token(body: bytes) -> None:
    found, _ = authority(lambda url, authorization: RegistryAnswer(200, {}, body), SECRET)
    with pytest.raises(UserError, match=r"the token server auth\.example of host answers without a token"):
        found.authenticate(BEARER, pull_scopes("a"), None)
    assert found.header(pull_scopes("a")) is None


def test_nobody_to_log_in_as() -> None:
    found, _ = authority(nobody, None)
    with pytest.raises(UserError, match="asks for a user name and a password: log in with"):
        found.authenticate("Basic", pull_scopes("a"), None)


def test_a_password_is_in_no_sentence() -> None:
    found, asked = authority(lambda url, authorization: RegistryAnswer(401), SECRET, SECRET)
    with pytest.raises(UserError) as refusal:
        found.authenticate(BEARER, pull_scopes("a"), None)
    assert asked == [False, True]
    assert "canary" not in str(refusal.value)
    assert HEADER not in str(refusal.value)
