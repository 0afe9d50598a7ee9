"""Repositories in moto's ECR: created, compared, changed with --apply, and never loosened."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from berth.common.errors import UserError
from berth.ecr.repositories import documents, repository
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.names import EcrRegistry
from berth.ecr.repositories.repository import RepositoryState, SettingDifference, WantedRepository

REGISTRY = EcrRegistry("123456789012", "eu-west-1")  # moto's own account
KEY = "arn:aws:kms:eu-west-1:123456789012:key/0a0a0a0a-1111-2222-3333-444455556666"
OTHER_KEY = KEY.replace("0a0a", "0b0b")
WANTED = WantedRepository("berth-train", lifecycle=documents.lifecycle_policy())
PULL = documents.pull_policy(REGISTRY, ["999988887777"])
DIGEST = "sha256:" + "0a" * 32


@pytest.fixture
def client(credentials: None) -> Iterator[Any]:
    with mock_aws():
        yield Aws().ecr(REGISTRY)


class Printed(list[str]):
    """The lines that were passed to `say`."""

    def __call__(self, line: str) -> None:
        self.append(line)


def ensure(client: Any, wanted: WantedRepository, *, apply: bool = False) -> tuple[RepositoryState, Printed]:
    """The repository's state after `ensure`, and the printed lines."""
    printed = Printed()
    repository.ensure(client, wanted, repository.describe(client, wanted.name), apply=apply, say=printed)
    state = repository.describe(client, wanted.name)
    assert state is not None
    return state, printed


def put_image(client: Any, tag: str, name: str = "berth-train") -> str:
    """Puts a manifest; moto accepts any content."""
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    config = {"mediaType": kind, "size": 1, "digest": DIGEST}
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [], "of": tag}
    put = client.put_image(repositoryName=name, imageManifest=json.dumps(manifest), imageTag=tag)
    return str(put["image"]["imageId"]["imageDigest"])


def refuse_once(monkeypatch: pytest.MonkeyPatch, client: Any, method: str, name: str = "ThrottlingException") -> None:
    """Makes the first call of a method fail with an error of AWS; later calls work."""
    works = getattr(client, method)

    def fails(**_: Any) -> None:
        monkeypatch.setattr(client, method, works)
        raise ClientError({"Error": {"Code": name, "Message": "no"}}, method)

    monkeypatch.setattr(client, method, fails)


def test_ensure_creates_missing_repository_with_all_settings(client: Any) -> None:
    assert repository.describe(client, "berth-train") is None
    made, output = ensure(client, replace(WANTED, kms_key=KEY, pull=PULL))
    assert output == ["made the repository berth-train"]
    assert made.arn == REGISTRY.arn("berth-train")
    assert made == RepositoryState(
        "berth-train",
        made.arn,
        encryption="KMS",
        kms_key=KEY,
        mutability="IMMUTABLE",
        scan_on_push=True,
        tags={"berth.kit": "repository"},
        lifecycle=documents.lifecycle_policy(),
        pull=PULL,
    )


def test_ensure_prints_nothing_if_nothing_differs(client: Any) -> None:
    ensure(client, replace(WANTED, pull=PULL))
    _, output = ensure(client, replace(WANTED, pull=PULL), apply=True)
    assert output == []


def test_existing_repository_is_changed_only_with_apply(client: Any) -> None:
    client.create_repository(repositoryName="berth-train")
    before = repository.describe(client, "berth-train")
    lines = [
        "image tags: mutable, wanted: immutable",
        "scan on push: off, wanted: on",
        "lifecycle policy: none, wanted: all of release-*, 50 of build-*, untagged for 30 days",
        "pull policy: nobody, wanted: arn:aws:iam::999988887777:root",
    ]
    wanted = replace(WANTED, pull=PULL)
    _, output = ensure(client, wanted)
    assert output == [
        *(f"the repository berth-train differs: {line}" for line in lines),
        "the repository berth-train is not changed: --apply changes it.",
    ]
    assert repository.describe(client, "berth-train") == before

    changed, output = ensure(client, wanted, apply=True)
    assert output == [f"the repository berth-train is changed: {line}" for line in lines]
    assert repository.differences(wanted, changed) == []
    assert ensure(client, wanted)[1] == []


def test_apply_never_loosens_settings(client: Any) -> None:
    deny = {"Sid": "keep", "Effect": "Deny", "Principal": "*", "Action": "ecr:BatchDeleteImage"}
    client.create_repository(
        repositoryName="berth-train",
        imageTagMutability="IMMUTABLE",
        imageScanningConfiguration={"scanOnPush": True},
        encryptionConfiguration={"encryptionType": "KMS", "kmsKey": KEY},
        tags=[{"Key": "theirs", "Value": "x"}],
    )
    policy = json.dumps({"Version": "2012-10-17", "Statement": deny})
    client.set_repository_policy(repositoryName="berth-train", policyText=policy)
    wanted = WantedRepository("berth-train", pull=PULL)
    changed, output = ensure(client, wanted, apply=True)
    assert output == [
        "the repository berth-train is changed: pull policy: nobody, wanted: arn:aws:iam::999988887777:root",
    ]
    assert changed.mutability == "IMMUTABLE"
    assert changed.scan_on_push
    assert (changed.encryption, changed.kms_key) == ("KMS", KEY)
    assert changed.tags == {"theirs": "x"}
    assert changed.pull == {"Version": "2012-10-17", "Statement": [deny, *PULL["Statement"]]}
    assert ensure(client, wanted)[1] == []


EXISTING = RepositoryState("berth-train", "arn", mutability="IMMUTABLE", scan_on_push=True)
STAYS = "ECR can't change it: delete the repository, or use one of another name"


@pytest.mark.parametrize(
    ("wanted", "existing", "differences"),
    [
        (WantedRepository("berth-train"), EXISTING, []),
        (WantedRepository("berth-train"), replace(EXISTING, encryption="KMS_DSSE", kms_key=KEY), []),
        (WantedRepository("berth-train", kms_key=KEY), replace(EXISTING, encryption="KMS", kms_key=KEY), []),
        (WantedRepository("berth-train", kms_key=KEY[-36:]), replace(EXISTING, encryption="KMS", kms_key=KEY), []),
        (WantedRepository("berth-train", kms_key="alias/mine"), replace(EXISTING, encryption="KMS", kms_key=KEY), []),
        (
            WantedRepository("berth-train", kms_key=KEY),
            EXISTING,
            [SettingDifference("encryption", "AES256", f"KMS {KEY}", STAYS)],
        ),
        (
            WantedRepository("berth-train", kms_key="alias/mine"),
            EXISTING,
            [SettingDifference("encryption", "AES256", "KMS alias/mine", STAYS)],
        ),
        (
            WantedRepository("berth-train", kms_key=OTHER_KEY),
            replace(EXISTING, encryption="KMS", kms_key=KEY),
            [SettingDifference("encryption", f"KMS {KEY}", f"KMS {OTHER_KEY}", STAYS)],
        ),
        (
            WantedRepository("berth-train"),
            replace(EXISTING, mutability="IMMUTABLE_WITH_EXCLUSION", exclusions=("cpu", "prod*")),
            [SettingDifference("image tags", "immutable but for cpu, prod*", "immutable")],
        ),
        (
            WantedRepository("berth-train", lifecycle=documents.lifecycle_policy()),
            replace(EXISTING, lifecycle={"rules": documents.lifecycle_policy()["rules"][:2]}),
            [
                SettingDifference(
                    "lifecycle policy",
                    "all of release-*, 50 of build-*",
                    "all of release-*, 50 of build-*, untagged for 30 days",
                )
            ],
        ),
        (
            WantedRepository("berth-train", pull=documents.pull_policy(REGISTRY, sagemaker=True)),
            replace(EXISTING, pull=PULL),
            [
                SettingDifference(
                    "pull policy",
                    "arn:aws:iam::999988887777:root",
                    "sagemaker.amazonaws.com for 123456789012",
                )
            ],
        ),
    ],
)
def test_differences(wanted: WantedRepository, existing: RepositoryState, differences: list[SettingDifference]) -> None:
    assert repository.differences(wanted, existing) == differences


@pytest.mark.parametrize(
    ("mutability", "exclusions", "moves"),
    [
        ("MUTABLE", (), ["cpu", "prod-1", "v1.0"]),
        ("IMMUTABLE", (), []),
        ("IMMUTABLE_WITH_EXCLUSION", ("cpu", "pro*-*"), ["cpu", "prod-1"]),
        ("MUTABLE_WITH_EXCLUSION", ("v*.0",), ["cpu", "prod-1"]),
        ("IMMUTABLE_WITH_EXCLUSION", ("v1x0",), []),  # a dot is not a wildcard
    ],
)
def test_can_move(mutability: str, exclusions: tuple[str, ...], moves: list[str]) -> None:
    existing = replace(EXISTING, mutability=mutability, exclusions=exclusions)
    assert [tag for tag in ("cpu", "prod-1", "v1.0") if existing.can_move(tag)] == moves


def test_kms_problems() -> None:
    chinese_alias = KEY.replace("key/", "alias/").replace("arn:aws:", "arn:aws-cn:")
    for key in (KEY, KEY[-36:], "alias/aws/ecr", "mrk-" + "0a" * 16, chinese_alias):
        assert repository.kms_problems(key) == []
    assert "'my key' is not a KMS key" in repository.kms_problems("my key")[0]


@pytest.mark.parametrize("method", ["put_lifecycle_policy", "set_repository_policy"])
def test_next_run_finishes_an_unfinished_repository(method: str, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = replace(WANTED, pull=PULL)
    refuse_once(monkeypatch, client, method, "AccessDeniedException")
    with pytest.raises(UserError) as refusal:
        ensure(client, wanted)
    what, action = {
        "put_lifecycle_policy": ("lifecycle policy", "ecr:PutLifecyclePolicy"),
        "set_repository_policy": ("pull policy", "ecr:SetRepositoryPolicy"),
    }[method]
    assert str(refusal.value) == (
        f"permission for {action} on {REGISTRY.arn('berth-train')} is missing: allow it to this user or role; "
        f"ecr/README.md has the minimal policy; the repository berth-train was made without its {what}: "
        "run the same command again to finish it."
    )
    finished, output = ensure(client, wanted)
    assert output == []
    assert repository.differences(wanted, finished) == []


def test_error_for_policy_that_ecr_refuses_names_the_file(client: Any) -> None:
    wrong = {"rules": [{**WANTED.lifecycle["rules"][0], "action": {"type": "delete"}}]}  # type: ignore[index]
    with pytest.raises(UserError) as refusal:
        ensure(client, replace(WANTED, lifecycle=wrong))
    sentence = str(refusal.value)
    assert sentence.startswith("ECR does not accept the policy of ecr/policies/lifecycle.json (")
    assert "): fix that file; the repository berth-train was made without its lifecycle policy: run" in sentence


@pytest.mark.slow
@pytest.mark.parametrize(
    "alter",
    [
        lambda client: put_image(client, "build-0.1.0-cpu-1a2b3c4d5e6f"),
        lambda client: client.untag_resource(resourceArn=REGISTRY.arn("berth-train"), tagKeys=["berth.kit"]),
        lambda client: client.put_image_scanning_configuration(
            repositoryName="berth-train", imageScanningConfiguration={"scanOnPush": False}
        ),
    ],
    ids=["with-image", "without-aws-tag", "changed-settings"],
)
def test_policy_removed_by_the_owner_is_not_restored_without_apply(alter: Callable[[Any], object], client: Any) -> None:
    ensure(client, WANTED)
    client.delete_lifecycle_policy(repositoryName="berth-train")
    alter(client)
    _, output = ensure(client, WANTED)
    assert output[-1] == "the repository berth-train is not changed: --apply changes it."
    after = repository.describe(client, "berth-train")
    assert after is not None
    assert after.lifecycle is None


def test_repository_created_by_another_process_is_finished(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    describes = client.describe_repositories

    def missing_once(**parameters: Any) -> Any:
        monkeypatch.setattr(client, "describe_repositories", describes)
        repository.create(client, WANTED)  # the other process, which has not set its policies yet
        return describes(repositoryNames=["nobodys"])

    monkeypatch.setattr(client, "describe_repositories", missing_once)
    state, output = ensure(client, WANTED)
    assert output == ["another process made berth-train just now"]
    assert state.lifecycle == WANTED.lifecycle


def test_missing_permission_names_action_and_repository(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_once(monkeypatch, client, "create_repository", "AccessDeniedException")
    with pytest.raises(UserError, match=r"permission for ecr:CreateRepository on berth-train is missing"):
        ensure(client, WANTED)
    assert repository.describe(client, "berth-train") is None


def test_delete_tag_ignores_missing_tags(client: Any) -> None:
    repository.delete_tag(client, "berth-train", "1.0")  # no repository
    ensure(client, WANTED)
    put_image(client, "0.9")
    put_image(client, "1.0")
    repository.delete_tag(client, "berth-train", "1.0")
    repository.delete_tag(client, "berth-train", "1.0")
    assert [each["imageTag"] for each in client.list_images(repositoryName="berth-train")["imageIds"]] == ["0.9"]


def test_error_for_tag_that_ecr_does_not_delete(client: Any) -> None:
    answer = {
        "failures": [{"failureCode": "ImageReferencedByManifestList", "failureReason": "in a list"}],
    }
    with Stubber(client) as stub:
        stub.add_response("batch_delete_image", answer)
        with pytest.raises(
            UserError, match=r"the tag 1\.0 of berth-train could not be deleted \(in a list\): delete it in"
        ):
            repository.delete_tag(client, "berth-train", "1.0")
