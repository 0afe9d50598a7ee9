"""A repository of ECR: made if it is missing, compared with what is wanted, and changed only where somebody says so.

`differences` decides, `ensure` acts. An existing repository is never loosened: immutable tags never become mutable, and
no statement of a repository policy that is not the kit's own is lost.
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

MADE = {labels.KIT: "repository"}
"""The AWS tag of a repository that the kit made, by which it knows an unfinished one again."""

_KMS_KEY = re.compile(
    r"alias/[\w/-]+|arn:[\w-]+:kms:[\w-]+:[0-9]{12}:(?:key|alias)/[\w/-]+|[0-9a-f-]{36}|mrk-[0-9a-f]{32}"
)


@dataclass(frozen=True, slots=True)
class WantedRepository:
    """How a repository should be; a policy that is None is left as it is found."""

    name: str
    kms_key: str | None = None
    """Id, alias or ARN of the KMS key that encrypts, `alias/aws/ecr` for AWS's own; None for AES-256 with S3's keys."""
    lifecycle: Document | None = None
    pull: Document | None = None


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """How a repository is."""

    name: str
    uri: str
    arn: str
    encryption: str = "AES256"
    kms_key: str = ""
    mutability: str = "MUTABLE"
    """As ECR calls it: MUTABLE or IMMUTABLE, either WITH_EXCLUSION."""
    exclusions: tuple[str, ...] = ()
    """Patterns of the tags for which the opposite holds, with * for any characters."""
    scan_on_push: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Document | None = None
    pull: Document | None = None

    @property
    def immutable(self) -> bool:
        """Whether tags can't go from one image to another; `can_move` says it of a certain one."""
        return self.mutability.startswith("IMMUTABLE")

    def can_move(self, tag: str) -> bool:
        """Whether ECR lets a tag go from one image to another."""
        patterns = (".*".join(map(re.escape, pattern.split("*"))) for pattern in self.exclusions)
        excluded = any(re.fullmatch(pattern, tag) for pattern in patterns)
        return excluded == self.immutable


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting that is not as wanted; `stays` says why it is not changed even when asked, empty where it can be."""

    what: str
    found: str
    wanted: str
    stays: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.found}, wanted: {self.wanted}{f'; {self.stays}' * bool(self.stays)}"


def kms_problems(key: str) -> list[str]:
    """What is wrong with the name of a KMS key, whether there is one or not."""
    if _KMS_KEY.fullmatch(key):
        return []
    return [f"{key!r} is no KMS key: give its id, alias/NAME or its ARN, or leave --kms-key out for AES-256."]


def settings(wanted: WantedRepository) -> list[str]:
    """What a new repository gets, in words."""
    return [
        "immutable tags",
        "scan on push",
        f"the KMS key {wanted.kms_key}" if wanted.kms_key else "AES-256",
        *([f"a lifecycle policy ({documents.summary(wanted.lifecycle)})"] if wanted.lifecycle is not None else []),
        *([f"pulls by {documents.pullers(wanted.pull)}"] if wanted.pull is not None else []),
    ]


def describe(client: Any, name: str) -> RepositoryState | None:
    """A repository as it is; None where there is none."""
    answer = _call(client, "describe_repositories", name, unless="RepositoryNotFoundException", repositoryNames=[name])
    if answer is None:
        return None
    if not answer.get("repositories"):
        raise UserError(
            f"what answers for ecr:DescribeRepositories says nothing of {name}: see where AWS_ENDPOINT_URL_ECR points "
            "to."
        )
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
    """Makes the repository, still without policies; None where another process was faster."""
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
        tags=[{"Key": name, "Value": value} for name, value in MADE.items()],
    )
    return None if answer is None else _state(answer["repository"], MADE, None, None)


def change(client: Any, wanted: WantedRepository, state: RepositoryState, difference: SettingDifference) -> None:
    """Makes one setting as it is wanted; one that stays is left."""
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
    """Makes the repository with all its settings if it is missing; differences of an existing one go through `say`.

    state: what `describe` says of it.

    With `apply` they are also fixed, but for those that stay. A repository that an earlier run made and could not
    finish, which is still empty, is finished without it. UserError says what is missing; the same call goes on there.
    """
    created = False
    if state is None:
        state = create(client, wanted)
        created = state is not None
        say(f"made the repository {wanted.name}" if created else f"another process made {wanted.name} just now")
        state = state or describe(client, wanted.name)
        if state is None:
            raise UserError(f"the repository {wanted.name} was made and deleted meanwhile: run the command again.")

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
            say(f"the repository {wanted.name} is left as it is: --apply changes it.")


def delete_tag(client: Any, repository: str, tag: str) -> None:
    """Takes a tag away, if it is there. ECR deletes an image with its last tag."""
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
                f"the tag {tag} of {repository} could not be deleted ({failure.get('failureReason')}): do it in the "
                "AWS console, or run the command again."
            )


def _call(client: Any, method: str, resource: str, *, unless: str | tuple[str, ...] = (), **parameters: Any) -> Any:
    """A call of ECR's API: its answer, None for the errors `unless`, UserError for all others."""
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
    """A repository out of ECR's own description of it."""
    encryption = described.get("encryptionConfiguration", {})
    return RepositoryState(
        name=described["repositoryName"],
        uri=described["repositoryUri"],
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
    """KMS where AES-256 would do is none; an alias can't be compared with the ARN of a key, which ECR shows."""
    key = wanted.kms_key
    kms = state.encryption.startswith("KMS")  # KMS_DSSE is KMS twice
    if key is None or (kms and ("alias/" in key or key in (state.kms_key, state.kms_key.rpartition("/")[2]))):
        return []
    return [
        SettingDifference(
            "encryption",
            f"{state.encryption} {state.kms_key}".strip(),
            f"KMS {key}",
            "ECR can't change it: delete the repository, or take one of another name",
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
    """Whether all that is missing are policies of a repository that the kit made and nobody has pushed to.

    An owner who took a lifecycle policy away does not get it back unasked, for it would expire images.
    """
    policies = {"lifecycle policy": state.lifecycle, "pull policy": state.pull}
    if any(policies.get(difference.what, "other") is not None for difference in todo):
        return False
    if any(state.tags.get(name) != value for name, value in MADE.items()):
        return False
    return not _call(client, "describe_images", state.arn, repositoryName=state.name, maxResults=1)["imageDetails"]


def _finish(client: Any, wanted: WantedRepository, state: RepositoryState, todo: list[SettingDifference]) -> None:
    """Puts the policies of a new repository, and says where that ends in the middle."""
    for difference in todo:
        try:
            change(client, wanted, state, difference)
        except UserError as error:
            raise UserError(
                f"{str(error).rstrip('.')}; the repository {wanted.name} is made without its {difference.what}, and "
                "the same command finishes it then."
            ) from None
