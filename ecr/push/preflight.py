"""Checks whether one image can be pushed to one repository, and what the push would change. It only reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from berth.common.concurrency import BackgroundTask
from berth.ecr.registry.manifest import Manifest
from berth.ecr.repositories import repository, retention
from berth.ecr.repositories.destination import immutable_problem
from berth.ecr.repositories.repository import RepositoryState, WantedRepository
from berth.ecr.repositories.repository_client import RepositoryClient
from berth.ecr.repositories.tags import ChosenTag, TagOwner, choose_tags
from berth.images.local_image import LocalImage


@dataclass(frozen=True)
class PushTask:
    """One image to push to one repository.

    wanted: the repository's settings, None if it is not in ECR; tags: the build's tag first, or for a user's own image
    the tag that he gave it; apply: whether to change an existing repository's settings before the push, after which its
    tags can't move.
    """

    image: LocalImage
    repository: RepositoryClient
    wanted: WantedRepository | None
    tags: tuple[str, ...]
    apply: bool


@dataclass(frozen=True)
class Preflight:
    """The result of the checks: lines for the user, and the problems that prevent the push.

    task: with the tags that the image will get; state: of the repository, None if it does not exist or is not in ECR;
    pushed: whether the first tag is on this very image already; warnings: about tags that will move or differ from the
    wanted ones, and about releases that may expire.
    """

    task: PushTask
    lines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    state: RepositoryState | None = None
    pushed: bool = False
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The result of a dry run, for JSON."""
        image, client = self.task.image, self.task.repository
        return {
            "image": image.image,
            "derived": image.name if image.derived else "",
            "profile": image.profile,
            "local_id": image.id,
            "host": client.registry.host,
            "repository": client.name,
            "tags": list(self.task.tags),
            "would": list(self.lines),
        }


def run_preflight(task: PushTask) -> Preflight:
    """Reads the repository's settings and its tags."""
    image, client, wanted = task.image, task.repository, task.wanted
    ping = BackgroundTask(client.registry.ping)  # parallel to the calls of ECR's API
    state = repository.describe(client.ecr, client.name) if wanted is not None else None
    ping.result()
    exists = wanted is None or state is not None
    lines = repository_lines(client, wanted, state)
    problems: list[str] = []
    owner = TagOwner(image.labels, image.digits, lambda held: _is_manifest_of(image, held, client))
    chosen = choose_tags(client, task.tags, owner) if exists else [ChosenTag(tag) for tag in task.tags]
    task = replace(task, tags=tuple(dict.fromkeys(each.tag for each in chosen)))
    warnings = [] if state is None or task.apply else expiring(task.tags, client, state)
    lines += warnings
    for each in chosen:
        line, problem = _tag_line(task, each, state)
        problems += [problem] if problem else []
        lines += [each.line] * bool(each.line) + [line] * (not problem)
        warnings += [each.line] * bool(each.line) + [line] * (each.holder is not None and not problem)
    return Preflight(task, tuple(lines), tuple(problems), state, chosen[0].is_current, tuple(warnings))


def _tag_line(task: PushTask, chosen: ChosenTag, state: RepositoryState | None) -> tuple[str, str]:
    """What the push will do with a tag, or why it can't; one of the two is empty."""
    if chosen.problem:
        return "", chosen.problem
    if chosen.holder is not None and state is not None and (task.apply or not state.can_move(chosen.tag)):
        return "", immutable_problem(str(task.repository), chosen.tag, task.image, chosen.holder.digest)
    return chosen.effect(task.repository), ""


def expiring(tags: Sequence[str], client: RepositoryClient, state: RepositoryState) -> list[str]:
    """A warning if the repository's lifecycle policy may expire the releases among these tags; else nothing."""
    releases = [tag for tag in tags if retention.is_release([tag])]
    if not releases or retention.keeps_releases(state.lifecycle):
        return []
    return [
        f"{client}: its lifecycle policy may expire {', '.join(releases)}, because the first rule does not keep "
        f"images with a tag {retention.PREFIX}*: --apply replaces it with berth's, which does."
    ]


def repository_lines(
    client: RepositoryClient, wanted: WantedRepository | None, state: RepositoryState | None
) -> list[str]:
    """What a push creates, or the settings that differ; nothing if the repository is not in ECR."""
    if wanted is None:
        return []
    if state is None:
        return [f"{client}: will be created: {', '.join(repository.settings(wanted))}"]
    return [f"{client}: {difference}" for difference in repository.differences(wanted, state)]


def _is_manifest_of(image: LocalImage, held: Manifest, client: RepositoryClient) -> bool:
    """Whether a manifest in the registry is this very image's.

    An image's ID in containerd's store is not the digest of its config, so there the layers and labels are compared.
    """
    if held.config_digest is None or image.id_is_config:
        return held.config_digest == image.id
    config = json.loads(client.registry.blob(client.name, held.config_digest))
    layers = tuple((config.get("rootfs") or {}).get("diff_ids") or ())
    return (layers, (config.get("config") or {}).get("Labels") or {}) == (image.diff_ids, dict(image.labels))
