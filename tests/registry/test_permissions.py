"""The minimal IAM policy of ecr/README.md, enforced by moto: a push needs exactly its actions of the control plane.

moto checks every action of ECR for the resource "*", and has no data plane. So the test allows all resources, and does
not check the actions of Docker's protocol.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core.authorization import enable_iam_authentication

from berth.common.errors import UserError
from berth.ecr.repositories import documents, repository
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.names import EcrRegistry
from berth.ecr.repositories.repository import WantedRepository

REGISTRY = EcrRegistry("123456789012", "eu-west-1")  # moto's own account
WANTED = WantedRepository(
    "berth-train",
    lifecycle=documents.lifecycle_policy(),
    pull=documents.pull_policy(REGISTRY, ["999988887777"], sagemaker=True),
)
POLICY = json.loads((documents.POLICIES / "push-iam.json").read_text())
ACTIONS = {action for statement in POLICY["Statement"] for action in statement["Action"] if action.startswith("ecr:")}
DOCKERS_PROTOCOL = {
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:CompleteLayerUpload",
    "ecr:GetDownloadUrlForLayer",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
}
# moto creates a repository with tags without checking this action.
NOT_CHECKED_BY_MOTO = {"ecr:TagResource"}
# Used for an existing repository only; a new one is not read.
FOR_EXISTING_REPOSITORIES = {
    "ecr:GetLifecyclePolicy",
    "ecr:GetRepositoryPolicy",
    "ecr:ListTagsForResource",
    "ecr:PutImageScanningConfiguration",
    "ecr:PutImageTagMutability",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_ENDPOINT_URL_ECR", raising=False)
    with mock_aws():
        yield


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> Callable[[set[str]], None]:
    """`allowed(actions)` makes this process an IAM user with only these permissions."""

    def become(actions: set[str]) -> None:
        iam = boto3.client("iam", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
        iam.create_user(UserName="ci")
        statement = {"Sid": "A", "Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName="ci", PolicyName="push", PolicyDocument=policy)
        key = iam.create_access_key(UserName="ci")["AccessKey"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])

    return become


def as_owner(call: Callable[[Any], object]) -> None:
    """Runs `call` as the account's owner, whom no policy limits."""
    call(boto3.client("ecr", region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x"))


def call_all_actions(client: Any) -> None:
    """All calls of a push to the control plane, for a repository that is missing, unfinished or has other settings."""
    existing = repository.describe(client, WANTED.name)
    repository.ensure(client, WANTED, existing, apply=True, say=lambda _: None)
    repository.delete_tag(client, "berth-train", "1.0")


def with_other_settings(client: Any) -> None:
    client.create_repository(repositoryName="berth-train", tags=[{"Key": "berth.kit", "Value": "none"}])


def unfinished(client: Any) -> None:
    """A repository of an interrupted push, without policies; the next push checks whether it is empty."""
    assert repository.create(client, WANTED) is not None


def refusal() -> str:
    with enable_iam_authentication():
        try:
            aws = Aws()
            (registry,) = aws.registries(["eu-west-1"])
            call_all_actions(aws.ecr(registry))
        except UserError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("prepare", [None, with_other_settings, unfinished])
def test_policy_allows_a_push(prepare: Callable[[Any], None] | None, allowed: Callable[[set[str]], None]) -> None:
    if prepare:
        as_owner(prepare)
    allowed(ACTIONS)
    assert refusal() == ""
    with enable_iam_authentication():
        found = repository.describe(Aws().ecr(REGISTRY), "berth-train")
    assert found is not None
    assert repository.differences(WANTED, found) == []


@pytest.mark.parametrize("action", sorted(ACTIONS - DOCKERS_PROTOCOL - NOT_CHECKED_BY_MOTO))
def test_error_names_the_missing_action(action: str, allowed: Callable[[set[str]], None]) -> None:
    if action in FOR_EXISTING_REPOSITORIES:
        as_owner(with_other_settings)
    if action == "ecr:DescribeImages":
        as_owner(unfinished)
    allowed(ACTIONS - {action})
    sentence = refusal()
    assert sentence.startswith(f"permission for {action}")
    assert "is missing: allow it to arn:aws:iam::123456789012:user/ci; ecr/README.md has the minimal policy" in sentence


def test_wrong_secret_key_is_refused(allowed: Callable[[set[str]], None], monkeypatch: pytest.MonkeyPatch) -> None:
    allowed(ACTIONS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    # moto answers in XML; ECR would answer in JSON.
    assert refusal().startswith("the answer to ecr:GetAuthorizationToken (403) is not from AWS")
