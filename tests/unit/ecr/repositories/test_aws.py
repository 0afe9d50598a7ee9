"""Account, region and clients from boto3's settings, and AWS's errors as sentences."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pytest
from botocore import exceptions as boto_errors
from botocore.parsers import ResponseParserError
from moto import mock_aws

from berth.common.errors import UserError
from berth.ecr.repositories import aws_errors
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.names import EcrRegistry
from tests.doubles.http_server import QuietHandler, serving

ACCOUNT = "123456789012"  # moto's own
REGISTRY = EcrRegistry(ACCOUNT, "eu-west-1")
ARN = REGISTRY.arn("berth-train")


class FaultyAws(QuietHandler):
    """A double of AWS that gives `answers` one after the other, and repeats the last."""

    answers: ClassVar[list[tuple[int, str]]] = []
    requests: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.requests.append(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.answer(status, body.encode(), {"Content-Type": "application/x-amz-json-1.1"})


@pytest.fixture
def faulty_aws(monkeypatch: pytest.MonkeyPatch, credentials: None) -> Iterator[type[FaultyAws]]:
    """AWS at a loopback address, which boto3 reads from its variables."""
    monkeypatch.setattr(FaultyAws, "requests", [])
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    with serving(FaultyAws) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", address)
        yield FaultyAws


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def find_registry(region: str | None = None, account: str | None = None) -> EcrRegistry:
    (found,) = Aws().registries([region] if region else [], [account] if account else [])
    return found


def registry_error(region: str | None = None, account: str | None = None) -> str:
    with pytest.raises(UserError) as refusal:
        find_registry(region, account)
    assert refusal.value.__cause__ is None
    return str(refusal.value)


def test_default_account_is_read_from_the_token() -> None:
    with mock_aws():
        assert find_registry("eu-west-1") == REGISTRY
    assert find_registry("eu-west-1", "111122223333") == EcrRegistry("111122223333", "eu-west-1")  # without a request


def test_registries_are_unique_per_region_and_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    both = Aws().registries(["us-east-1", "eu-west-1", "us-east-1"], ["111122223333"])
    assert both == [EcrRegistry("111122223333", "us-east-1"), EcrRegistry("111122223333", "eu-west-1")]
    with mock_aws():
        assert Aws().registries() == [EcrRegistry(ACCOUNT, "sa-east-1")]
        assert Aws().registries(["us-east-1"]) == [EcrRegistry(ACCOUNT, "us-east-1")]


@pytest.mark.parametrize(
    ("variables", "region"),
    [
        ({"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
        ({"AWS_REGION": "us-east-2"}, "us-east-2"),
        ({"AWS_REGION": "us-east-2", "AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
        ({"AWS_PROFILE": "team"}, "sa-east-1"),
        ({"AWS_PROFILE": "team", "AWS_REGION": "us-east-2"}, "us-east-2"),
    ],
)
def test_region_is_read_from_environment_and_profile(
    variables: dict[str, str], region: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile team]\nregion = sa-east-1\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_registry(account="111122223333").region == region
    assert find_registry("eu-west-1", "111122223333").region == "eu-west-1"


def test_missing_settings_are_reported_before_any_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_region = "no AWS region is set: give --region, set AWS_REGION, or write a region into your profile."
    no_credentials = (
        "there are no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or log in with "
        "`aws sso login`."
    )
    assert registry_error() == f"{no_region}\n{no_credentials}"
    assert registry_error("eu-west-1") == no_credentials
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "example")
        assert registry_error() == no_region
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    assert "missing: AWS_SECRET_ACCESS_KEY" in registry_error("eu-west-1")
    monkeypatch.setenv("AWS_REGION", "eu-west")
    assert "'eu-west' is not a region that this boto3 knows, the nearest is eu-west-" in registry_error()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert (
        registry_error("eu-west-1")
        == "there is no AWS profile 'nobody': set AWS_PROFILE to one that `aws configure` made."
    )
    (tmp_path / "config").write_text("[profile")
    assert registry_error("eu-west-1").endswith(f"Unable to parse config file: {tmp_path}/config.")


def test_error_for_unreachable_endpoint(monkeypatch: pytest.MonkeyPatch, credentials: None) -> None:
    monkeypatch.setattr(aws_errors, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", "http://user:canary@127.0.0.1:9/path")
    assert registry_error("eu-west-1") == (
        "http://127.0.0.1:9 can't be reached for ecr:GetAuthorizationToken: look at the network, the proxy and the "
        "region."
    )


def test_error_for_invalid_endpoint(monkeypatch: pytest.MonkeyPatch, credentials: None) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", "canary")
    sentence = "AWS_ENDPOINT_URL_ECR, or your profile's endpoint_url, is not an http(s) address: fix it."
    assert registry_error("eu-west-1") == sentence
    with pytest.raises(UserError) as refusal:
        Aws().ecr(REGISTRY)
    assert str(refusal.value) == sentence


def failing(name: str, message: str = "", status: int = 400) -> tuple[int, str]:
    return status, f'{{"__type": "{name}", "message": "{message}"}}'


def ask(action: str = "ecr:DescribeRepositories") -> Any:
    with aws_errors.explain_aws_errors(action, ARN):
        return Aws().ecr(REGISTRY).describe_repositories(repositoryNames=["berth-train"])


def test_throttled_and_failed_calls_are_retried(faulty_aws: type[FaultyAws]) -> None:
    faulty_aws.answers = [failing("ThrottlingException"), failing("", status=503), (200, '{"repositories": []}')]
    assert ask()["repositories"] == []
    assert len(faulty_aws.requests) == 3


def test_calls_pass_the_registrys_account(faulty_aws: type[FaultyAws]) -> None:
    faulty_aws.answers = [(200, "{}")]
    client = Aws().ecr(EcrRegistry("999988887777", "eu-west-1"))
    client.describe_repositories(repositoryNames=["berth-train"])
    client.describe_repositories(repositoryNames=["berth-train"], registryId="111122223333")
    client.list_tags_for_resource(resourceArn=ARN)  # this call has no registryId
    assert faulty_aws.requests == [
        b'{"registryId": "999988887777", "repositoryNames": ["berth-train"]}',
        b'{"registryId": "111122223333", "repositoryNames": ["berth-train"]}',
        f'{{"resourceArn": "{ARN}"}}'.encode(),
    ]


def test_fips_registry_uses_the_fips_endpoint(credentials: None) -> None:
    client = Aws().ecr(EcrRegistry(ACCOUNT, "us-gov-west-1", fips=True))
    assert client.meta.endpoint_url == "https://ecr-fips.us-gov-west-1.amazonaws.com"
    assert Aws().ecr(REGISTRY).meta.endpoint_url == "https://api.ecr.eu-west-1.amazonaws.com"


DENIED = "User: arn:aws:iam::1:user/x is not authorized to perform: "
LEAST = "ecr/README.md has the minimal policy."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message", "status", "sentence"),
    [
        (
            "AccessDeniedException",
            f"{DENIED}ecr:TagResource on resource: {ARN} because no identity-based policy allows the action",
            400,
            f"permission for ecr:TagResource on {ARN} is missing: allow it to arn:aws:iam::1:user/x; {LEAST}",
        ),
        (
            "AccessDeniedException",
            f"{DENIED}ecr:GetAuthorizationToken on resource: * because no identity-based policy allows it",
            400,
            f"permission for ecr:GetAuthorizationToken is missing: allow it to arn:aws:iam::1:user/x; {LEAST}",
        ),
        (
            "AccessDenied",
            "",
            403,
            f"permission for ecr:DescribeRepositories on {ARN} is missing: allow it to this user or role; {LEAST}",
        ),
        (
            "AccessDeniedException",
            f"{DENIED}ecr:CreateRepository on resource: {ARN} with an explicit deny in a service control policy",
            400,
            f"ecr:CreateRepository on {ARN} is denied by an explicit rule in a service control policy: ask who wrote "
            "it.",
        ),
        (
            "ExpiredTokenException",
            "The security token included in the request is expired",
            400,
            "the AWS credentials have expired: get new ones, e.g. with `aws sso login`, and run the command again.",
        ),
        (
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
            400,
            "AWS does not accept these credentials (UnrecognizedClientException): check that they belong to the "
            "right partition (China and GovCloud have their own) and still exist, and that the region is enabled in "
            "the account.",
        ),
        (
            "InvalidSignatureException",
            "Signature expired: 20261122T000000Z is now earlier than",
            400,
            "AWS rejects requests because of their time: set this machine's clock, and run the command again.",
        ),
        (
            "KmsException",
            "Key 'x' does not\\nexist.",
            400,
            f"AWS refuses ecr:DescribeRepositories on {ARN} (KmsException): Key 'x' does not exist.",
        ),
        (
            "InvalidParameterException",
            "",
            400,
            f"AWS refuses ecr:DescribeRepositories on {ARN} (InvalidParameterException): no reason given.",
        ),
    ],
)
def test_aws_errors_are_explained(
    name: str, message: str, status: int, sentence: str, faulty_aws: type[FaultyAws]
) -> None:
    faulty_aws.answers = [failing(name, message, status)]
    with pytest.raises(UserError) as refusal:
        ask()
    assert str(refusal.value) == sentence
    assert len(faulty_aws.requests) == 1


@pytest.mark.parametrize(("name", "status"), [("ThrottlingException", 400), ("ServerException", 500)])
def test_retries_end_after_six_attempts(name: str, status: int, faulty_aws: type[FaultyAws]) -> None:
    faulty_aws.answers = [failing(name, "", status)]
    with pytest.raises(UserError, match=rf"ecr:DescribeRepositories failed at AWS 6 times \({name}\)"):
        ask()
    assert len(faulty_aws.requests) == aws_errors.ATTEMPTS == 6


@pytest.mark.parametrize(
    ("error", "beginning"),
    [
        (boto_errors.UnauthorizedSSOTokenError(), "the AWS login of this profile has ended: run `aws sso login`"),
        (boto_errors.TokenRetrievalError(provider="sso", error_msg="x"), "the AWS login of this profile has ended"),
        (boto_errors.NoRegionError(), "no AWS region is set: give --region"),
        (
            boto_errors.SSLError(endpoint_url="https://sts.amazonaws.com/", error="self-signed certificate"),
            "https://sts.amazonaws.com is not trusted (self-signed certificate): name a file with your CA's",
        ),
        (
            boto_errors.ProxyConnectionError(proxy_url="http://user:canary@proxy:3128"),
            "the proxy http://proxy:3128 can't be reached: look at HTTPS_PROXY and NO_PROXY.",
        ),
        (boto_errors.HTTPClientError(error="odd"), "AWS can't be reached for ecr:PutImage: look at the network"),
        (ResponseParserError("<html>"), "the answer to ecr:PutImage is not from AWS: check AWS_ENDPOINT_URL"),
        (
            FileNotFoundError(2, "No such file or directory", "/token"),
            "/token: No such file or directory: AWS's settings",
        ),
        (
            boto_errors.ParamValidationError(report="Missing\n  required http://u:canary@h"),
            "ecr:PutImage: Parameter validation failed: Missing required http://h.",
        ),
    ],
)
def test_boto3_errors_are_explained(error: Exception, beginning: str) -> None:
    with pytest.raises(UserError) as raised, aws_errors.explain_aws_errors("ecr:PutImage"):
        raise error
    assert str(raised.value).startswith(beginning)
    assert "canary" not in str(raised.value)


NO_TOKEN = "the answer of ECR has no valid token: check AWS_ENDPOINT_URL_ECR."
NOT_FROM_AWS = (
    "the answer to ecr:GetAuthorizationToken{} is not from AWS: check AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_* and "
    "HTTPS_PROXY."
)


@pytest.mark.parametrize(
    ("status", "page", "sentence"),
    [
        *((200, page, NO_TOKEN) for page in ("<html><body>Welcome</body></html>", "{}", "no JSON", "")),
        *((200, page, NOT_FROM_AWS.format("")) for page in ("[]", "null", "7")),
        (403, "<html><title>Blocked</title></html>", NOT_FROM_AWS.format(" (403)")),
    ],
)
def test_error_for_answer_that_is_not_from_ecr(
    status: int, page: str, sentence: str, faulty_aws: type[FaultyAws]
) -> None:
    faulty_aws.answers = [(status, page)]
    assert registry_error("eu-west-1") == sentence


@pytest.mark.parametrize("address", ["", "https://example.com", 7])
def test_error_for_token_without_registry(address: object, faulty_aws: type[FaultyAws]) -> None:
    token = base64.b64encode(b"AWS:secret").decode()
    data = {"authorizationToken": token, "expiresAt": 1.8e9, "proxyEndpoint": address}
    faulty_aws.answers = [(200, json.dumps({"authorizationData": [data]}))]
    assert registry_error("eu-west-1") == (
        "the answer of ECR does not name the registry of its token: give --account, or check AWS_ENDPOINT_URL_ECR."
    )


def test_clients_and_logins_are_cached(credentials: None) -> None:
    aws = Aws()
    other = EcrRegistry("999988887777", REGISTRY.region)
    assert aws.ecr(REGISTRY) is aws.ecr(REGISTRY)
    assert aws.ecr(REGISTRY) is not aws.ecr(other)
    assert aws.login(REGISTRY.region) is aws.login(REGISTRY.region)
    assert aws.login(REGISTRY.region) is not aws.login("us-east-1")


def test_missing_credentials_are_reported_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # other tests of this process may have used it
    with pytest.raises(UserError, match="there are no AWS credentials"):
        ask()
    assert boto3.DEFAULT_SESSION is None  # sessions are not shared between threads


def test_explain_aws_errors_passes_other_exceptions_on() -> None:
    with pytest.raises(KeyError, match="ours"), aws_errors.explain_aws_errors("ecr:PutImage"):
        {}["ours"]
