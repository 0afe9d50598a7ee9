"""A repository in ECR: created if missing, compared with the wanted settings, and changed only with --apply.

`differences` compares, `ensure` acts. An existing repository never becomes less strict: immutable tags stay immutable,
and other people's statements in a repository policy are kept.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from berth.common import labels
from berth.common.concurrency import BackgroundTask
from berth.common.errors import UserError
from berth.ecr.repositories import documents
from berth.ecr.repositories.aws_errors import code, explain_aws_errors
from berth.ecr.repositories.documents import Document

BERTH_TAGS = {labels.KIT: "repository"}
"""The AWS tags of repositories that berth makes, by which it recognises an unfinished one."""

_KMS_KEY = re.compile(
    r"alias/[\w/-]+|arn:[\w-]+:kms:[\w-]+:[0-9]{12}:(?:key|alias)/[\w/-]+|[0-9a-f-]{36}|mrk-[0-9a-f]{32}"
)


@dataclass(frozen=True, slots=True)
class WantedRepository:
    """The wanted settings of a repository; a policy that is None is not changed."""

    name: str
    kms_key: str | None = None
    """ID, alias or ARN of the KMS key, `alias/aws/ecr` for AWS's own; None for AES-256 with S3's keys."""
    lifecycle: Document | None = None
    pull: Document | None = None


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """The current settings of a repository."""

    name: str
    arn: str
    encryption: str = "AES256"
    kms_key: str = ""
    mutability: str = "MUTABLE"
    """ECR's value: MUTABLE, IMMUTABLE, or either with the suffix _WITH_EXCLUSION."""
    exclusions: tuple[str, ...] = ()
    """Patterns of tags for which the opposite applies; * matches any characters."""
    scan_on_push: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Document | None = None
    pull: Document | None = None

    @property
    def immutable(self) -> bool:
        """Whether tags in general can't move to another image; `can_move` also respects the exclusions."""
        return self.mutability.startswith("IMMUTABLE")

    def can_move(self, tag: str) -> bool:
        """Whether ECR lets this tag move to another image."""
        patterns = (".*".join(map(re.escape, pattern.split("*"))) for pattern in self.exclusions)
        excluded = any(re.fullmatch(pattern, tag) for pattern in patterns)
        return excluded == self.immutable


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that is not as wanted. stays: why it can't be changed, even with --apply; empty if it can."""

    what: str
    found: str
    wanted: str
    stays: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.found}, wanted: {self.wanted}{f'; {self.stays}' * bool(self.stays)}"


def kms_problems(key: str) -> list[str]:
    """Problems of a KMS key's name; whether the key exists is not checked."""
    if _KMS_KEY.fullmatch(key):
        return []
    return [f"{key!r} is not a KMS key: give its ID, alias/NAME or its ARN, or leave --kms-key out for AES-256."]


def settings(wanted: WantedRepository) -> list[str]:
    """The settings of a new repository, in words."""
    return [
        "immutable tags",
        "scan on push",
        f"the KMS key {wanted.kms_key}" if wanted.kms_key else "AES-256",
        *([f"a lifecycle policy ({documents.summary(wanted.lifecycle)})"] if wanted.lifecycle is not None else []),
        *([f"pulls by {documents.pullers(wanted.pull)}"] if wanted.pull is not None else []),
    ]


def describe(client: Any, name: str) -> RepositoryState | None:
    """A repository's current settings; None if it does not exist."""
    answer = _call(client, "describe_repositories", name, unless="RepositoryNotFoundException", repositoryNames=[name])
    if answer is None:
        return None
    if not answer.get("repositories"):
        raise UserError(f"the answer to ecr:DescribeRepositories does not contain {name}: check AWS_ENDPOINT_URL_ECR.")
    described = answer["repositories"][0]
    arn = described["repositoryArn"]

    def ask(method: str, unless: str = "", **parameters: str) -> BackgroundTask[Any]:
        return BackgroundTask(lambda: _call(client, method, arn, unless=unless, **parameters))

    tags = ask("list_tags_for_resource", resourceArn=arn)
    lifecycle = ask("get_lifecycle_policy", "LifecyclePolicyNotFoundException", repositoryName=name)
    pull = ask("get_repository_policy", "RepositoryPolicyNotFoundException", repositoryName=name)
    return _state(
        described,
        {tag["Key"]: tag["Value"] for tag in tags.result().get("tags", [])},
        json.loads(lifecycle.result()["lifecyclePolicyText"]) if lifecycle.result() else None,
        json.loads(pull.result()["policyText"]) if pull.result() else None,
    )


def differences(wanted: WantedRepository, state: RepositoryState) -> list[SettingDifference]:
    """The settings of a repository that are not as wanted."""
    return [
        *_encryption(wanted, state),
        *_mutability(state),
        *([] if state.scan_on_push else [SettingDifference("scan on push", "off", "on")]),
        *_policies(wanted, state),
    ]


def create(client: Any, wanted: WantedRepository) -> RepositoryState | None:
    """Creates the repository without policies; None if another process has just created it."""
    key = wanted.kms_key
    encryption = {"encryptionType": "KMS", "kmsKey": key} if key else {"encryptionType": "AES256"}
    answer = _call(
        client,
        "create_repository",
        wanted.name,
        unless="RepositoryAlreadyExistsException",
        repositoryName=wanted.name,
        imageTagMutability="IMMUTABLE",
        imageScanningConfiguration={"scanOnPush": True},
        encryptionConfiguration=encryption,
        tags=[{"Key": name, "Value": value} for name, value in BERTH_TAGS.items()],
    )
    return None if answer is None else _state(answer["repository"], BERTH_TAGS, None, None)


def change(client: Any, wanted: WantedRepository, state: RepositoryState, difference: SettingDifference) -> None:
    """Changes one setting, unless it can't be changed."""
    if difference.stays:
        return
    name, arn = state.name, state.arn
    match difference.what:
        case "image tags":
            _call(client, "put_image_tag_mutability", arn, repositoryName=name, imageTagMutability="IMMUTABLE")
        case "scan on push":
            on = {"scanOnPush": True}
            _call(client, "put_image_scanning_configuration", arn, repositoryName=name, imageScanningConfiguration=on)
        case "lifecycle policy":
            policy = documents.as_text(wanted.lifecycle)
            _call(client, "put_lifecycle_policy", arn, repositoryName=name, lifecyclePolicyText=policy)
        case "pull policy":
            assert wanted.pull is not None
            policy = documents.as_text(documents.merged(state.pull, wanted.pull))
            _call(client, "set_repository_policy", arn, repositoryName=name, policyText=policy)


def ensure(
    client: Any, wanted: WantedRepository, state: RepositoryState | None, *, apply: bool, say: Callable[[str], None]
) -> None:
    """Creates a missing repository with all settings; prints how an existing one differs.

    state: from `describe`; apply: whether to change settings of an existing one. A repository that an earlier run made
    without finishing it, and that is still empty, is finished without `apply`. After a UserError the same call
    continues.
    """
    created = False
    if state is None:
        state = create(client, wanted)
        created = state is not None
        say(f"made the repository {wanted.name}" if created else f"another process made {wanted.name} just now")
        state = state or describe(client, wanted.name)
        if state is None:
            raise UserError(f"the repository {wanted.name} was deleted just after it was made: run the command again.")

    todo = differences(wanted, state)
    if todo and (created or _unfinished(client, state, todo)):
        _finish(client, wanted, state, todo)
    elif todo:
        for difference in todo:
            verb = "differs" if difference.stays or not apply else "is changed"
            say(f"the repository {wanted.name} {verb}: {difference}")
            if apply:
                change(client, wanted, state, difference)
        if not apply and not all(difference.stays for difference in todo):
            say(f"the repository {wanted.name} is not changed: --apply changes it.")


def delete_tag(client: Any, repository: str, tag: str) -> None:
    """Removes a tag, if it exists. ECR deletes an image with its last tag."""
    answer = _call(
        client,
        "batch_delete_image",
        repository,
        unless="RepositoryNotFoundException",
        repositoryName=repository,
        imageIds=[{"imageTag": tag}],
    )
    for failure in (answer or {}).get("failures", []):
        if failure.get("failureCode") != "ImageNotFound":
            raise UserError(
                f"the tag {tag} of {repository} could not be deleted ({failure.get('failureReason')}): delete it in "
                "the AWS console, or run the command again."
            )


def _call(client: Any, method: str, resource: str, *, unless: str | tuple[str, ...] = (), **parameters: Any) -> Any:
    """Calls ECR's API; returns the answer, or None for the error codes in `unless`. UserError for all others."""
    with explain_aws_errors(f"ecr:{client.meta.method_to_api_mapping[method]}", resource):
        try:
            return getattr(client, method)(**parameters)
        except ClientError as error:
            if code(error) in ((unless,) if isinstance(unless, str) else unless):
                return None
            raise


def _state(
    described: Mapping[str, Any], tags: Mapping[str, str], lifecycle: Document | None, pull: Document | None
) -> RepositoryState:
    """A repository's state, from ECR's description of it."""
    encryption = described.get("encryptionConfiguration", {})
    return RepositoryState(
        name=described["repositoryName"],
        arn=described["repositoryArn"],
        encryption=encryption.get("encryptionType", "AES256"),
        kms_key=encryption.get("kmsKey", ""),
        mutability=described.get("imageTagMutability", "MUTABLE"),
        exclusions=tuple(one["filter"] for one in described.get("imageTagMutabilityExclusionFilters") or ()),
        scan_on_push=bool(described.get("imageScanningConfiguration", {}).get("scanOnPush")),
        tags=dict(tags),
        lifecycle=lifecycle,
        pull=pull,
    )


def _encryption(wanted: WantedRepository, state: RepositoryState) -> list[SettingDifference]:
    """KMS instead of the wanted AES-256 is accepted. ECR shows the key's ARN, with which an alias can't be compared."""
    key = wanted.kms_key
    kms = state.encryption.startswith("KMS")  # KMS_DSSE is KMS twice
    if key is None or (kms and ("alias/" in key or key in (state.kms_key, state.kms_key.rpartition("/")[2]))):
        return []
    return [
        SettingDifference(
            "encryption",
            f"{state.encryption} {state.kms_key}".strip(),
            f"KMS {key}",
            "ECR can't change it: delete the repository, or use one of another name",
        )
    ]


def _mutability(state: RepositoryState) -> list[SettingDifference]:
    words = "immutable" if state.immutable else "mutable"
    if state.exclusions:
        words += f" but for {', '.join(state.exclusions)}"
    return [] if words == "immutable" else [SettingDifference("image tags", words, "immutable")]


def _policies(wanted: WantedRepository, state: RepositoryState) -> list[SettingDifference]:
    differ = []
    if wanted.lifecycle is not None and not documents.same_lifecycle(state.lifecycle, wanted.lifecycle):
        summaries = documents.summary(state.lifecycle), documents.summary(wanted.lifecycle)
        differ.append(SettingDifference("lifecycle policy", *summaries))
    if wanted.pull is not None and not documents.same(state.pull, documents.merged(state.pull, wanted.pull)):
        differ.append(SettingDifference("pull policy", documents.pullers(state.pull), documents.pullers(wanted.pull)))
    return differ


def _unfinished(client: Any, state: RepositoryState, todo: list[SettingDifference]) -> bool:
    """Whether only policies are missing, in a repository that berth made and that is empty.

    In a repository with images the owner may have removed the lifecycle policy on purpose: setting it again would
    expire images.
    """
    policies = {"lifecycle policy": state.lifecycle, "pull policy": state.pull}
    if any(policies.get(difference.what, "other") is not None for difference in todo):
        return False
    if any(state.tags.get(name) != value for name, value in BERTH_TAGS.items()):
        return False
    return not _call(client, "describe_images", state.arn, repositoryName=state.name, maxResults=1)["imageDetails"]


def _finish(client: Any, wanted: WantedRepository, state: RepositoryState, todo: list[SettingDifference]) -> None:
    """Sets the policies of a new repository; after an error the sentence names the missing one."""
    for difference in todo:
        try:
            change(client, wanted, state, difference)
        except UserError as error:
            raise UserError(
                f"{str(error).rstrip('.')}; the repository {wanted.name} was made without its {difference.what}: run "
                "the same command again to finish it."
            ) from None
