"""Logins to ECR and those stored by Docker; passwords never appear in errors, logs or reprs."""

import base64
import json
import logging
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from berth.common.errors import UserError
from berth.ecr.registry.challenge import Credentials
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.login import MARGIN, EcrLogin, StoredLogin
from berth.ecr.repositories.names import EcrRegistry
from tests.doubles.programs import shell_program

pytestmark = pytest.mark.usefixtures("credentials")

CANARY = "canary-9f8e7d"
REGISTRY = EcrRegistry("123456789012", "eu-west-1")
HOST = "registry.example.com:5000"


def answer(password: str, end: datetime, user: str = "AWS") -> dict[str, Any]:
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorizationData": [{"authorizationToken": token, "expiresAt": end, "proxyEndpoint": "https://x"}]}


def stubbed(*answers: dict[str, Any]) -> tuple[Any, Stubber]:
    client = boto3.Session().client("ecr", region_name="eu-west-1")
    stub = Stubber(client)
    for each in answers:
        stub.add_response("get_authorization_token", each, {})
    stub.activate()
    return client, stub


def test_token_is_cached_until_shortly_before_it_expires() -> None:
    time = [datetime(2026, 11, 21, tzinfo=UTC)]
    end = time[0] + timedelta(hours=12)
    client, stub = stubbed(answer("one", end), answer("two", end + timedelta(hours=12)))
    login = EcrLogin(client, lambda: time[0])
    assert login(renew=False) == login(renew=False) == Credentials("AWS", "one")
    time[0] = end - MARGIN - timedelta(seconds=1)
    assert login(renew=False).password == "one"
    time[0] = end - MARGIN
    assert login(renew=False).password == "two"
    stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(datetime(2999, 1, 1, tzinfo=UTC), id="valid"),
        # moto's tokens expired in 2015. With a clock that is far ahead every token seems expired.
        pytest.param(datetime(2015, 1, 1, tzinfo=UTC), id="seems-expired"),
    ],
)
def test_new_token_is_used_until_it_is_refused(end: datetime) -> None:
    client, stub = stubbed(answer("0", end), answer("1", end))
    login = EcrLogin(client)
    assert [login(renew=renew).password for renew in (False, False, True, False)] == ["0", "0", "1", "1"]
    stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    "wrong",
    [
        {"authorizationData": []},
        {},
        {"authorizationData": [{"authorizationToken": f"!{CANARY}", "expiresAt": datetime.now(UTC)}]},
        {"authorizationData": [{"authorizationToken": base64.b64encode(CANARY.encode()).decode()}]},
        {"authorizationData": [{"authorizationToken": base64.b64encode(b"AWS:x").decode()}]},
    ],
)
def test_error_for_answer_without_token(wrong: dict[str, Any]) -> None:
    client, _ = stubbed(wrong)
    with pytest.raises(UserError) as refusal:
        EcrLogin(client)(renew=False)
    assert str(refusal.value) == ("the answer of ECR has no valid token: check AWS_ENDPOINT_URL_ECR.")
    assert CANARY not in "".join(traceback.format_exception(refusal.value))


def test_token_is_not_in_repr_or_logs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """moto's token contains the account, so the account serves as a canary."""
    caplog.set_level(logging.DEBUG)
    account = "987654321098"
    monkeypatch.setenv("MOTO_ACCOUNT_ID", account)
    with mock_aws():
        login = Aws().login(REGISTRY.region)
        token_login = login(renew=False)
    assert token_login.password == f"{account}-auth-token"
    token = base64.b64encode(f"AWS:{token_login.password}".encode()).decode()
    shown = "\n".join(
        [caplog.text, *capfd.readouterr(), repr(token_login), repr(login), repr(vars(login)), f"{token_login}"]
    )
    assert "GetAuthorizationToken" in shown  # proves that debug logs were captured
    assert token_login.password not in shown
    assert token not in shown


@pytest.fixture
def docker_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of Docker's configuration; helpers in its folder come first on PATH."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "config.json"


def stored(user: str = "me", password: str = CANARY) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def test_stored_login_is_found_by_host_and_port(docker_config: Path) -> None:
    assert StoredLogin(HOST)(renew=False) is None  # no file at all
    docker_config.write_text(json.dumps({"auths": {HOST: stored(), "other.example.com": stored("you", "other")}}))
    before = docker_config.read_bytes()
    assert StoredLogin(HOST)(renew=False) == Credentials("me", CANARY)
    assert StoredLogin(HOST)(renew=True) == Credentials("me", CANARY)
    assert StoredLogin("other.example.com")(renew=False) == Credentials("you", "other")
    assert StoredLogin("registry.example.com")(renew=False) is None
    assert docker_config.read_bytes() == before
    assert [path.name for path in docker_config.parent.iterdir()] == ["config.json"]


@pytest.mark.parametrize("content", ["{}", '{"auths": {}}', f'{{"auths": {{"{HOST}": {{}}}}}}', ""])
def test_stored_login_returns_none_without_credentials(content: str, docker_config: Path) -> None:
    docker_config.write_text(content)
    assert StoredLogin(HOST)(renew=False) is None


@pytest.mark.parametrize("key", ["credsStore", "credHelpers"])
def test_credential_helper_is_used(key: str, docker_config: Path) -> None:
    docker_config.write_text(json.dumps({key: "canary" if key == "credsStore" else {HOST: "canary"}}))
    program = docker_config.with_name("docker-credential-canary")
    shell_program(program, f"""read host; echo "{{\\"Username\\": \\"$host\\", \\"Secret\\": \\"{CANARY}\\"}}" """)
    assert StoredLogin(HOST)(renew=False) == Credentials(HOST, CANARY)
    shell_program(program, "echo credentials not found in native keychain; exit 1")
    assert StoredLogin(HOST)(renew=False) is None


@pytest.mark.parametrize(
    "script",
    [f"echo {CANARY}; exit 1", f"echo {CANARY}", f"""echo '{{"Secret": "{CANARY}"}}'""", "exec /no/such/thing", None],
)
def test_failing_helper_is_named_without_its_output(
    script: str | None, docker_config: Path, recwarn: pytest.WarningsRecorder
) -> None:
    docker_config.write_text('{"credsStore": "canary"}')
    if script is not None:
        shell_program(docker_config.with_name("docker-credential-canary"), script)
    with pytest.raises(UserError) as refusal:
        StoredLogin(HOST)(renew=False)
    assert str(refusal.value) == (
        f"docker-credential-canary does not return the login to {HOST}: check that it works, or run "
        f"`docker login {HOST}` and then this command again."
    )
    assert CANARY not in "".join(traceback.format_exception(refusal.value))
    assert len(recwarn) == 0


LOGINS = [[CANARY], {HOST: "x"}, {HOST: {"auth": CANARY}}, {HOST: {"auth": "é"}}, {HOST: {"auth": 5}}]
MALFORMED = [CANARY, f'["{CANARY}"]', "[]", "5", '{"credHelpers": 5}', '{"auths": {}', "\0"]


@pytest.mark.parametrize("content", [*(json.dumps({"auths": each}) for each in LOGINS), *MALFORMED, None])
def test_malformed_configuration_or_login_is_refused(content: str | None, docker_config: Path) -> None:
    if content is None:
        docker_config.mkdir()
    else:
        docker_config.write_text(content)
    with pytest.raises(UserError) as refusal:
        StoredLogin(HOST)(renew=False)
    assert str(refusal.value) == (
        f"the logins in {docker_config} can't be read: fix that file, or move it away and run `docker login {HOST}` "
        "and then this command again."
    )
    assert CANARY not in "".join(traceback.format_exception(refusal.value))


def test_identity_token_is_refused(docker_config: Path) -> None:
    docker_config.write_text(json.dumps({"auths": {HOST: {**stored(), "identitytoken": CANARY}}}))
    with pytest.raises(UserError) as refusal:
        StoredLogin(HOST)(renew=False)
    assert str(refusal.value).startswith(f"Docker has an identity token for {HOST}, which only Docker can use: ")
    assert CANARY not in str(refusal.value)
