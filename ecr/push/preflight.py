"""What a push of one image to one repository would meet, and everything that is in its way. It only reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from berth.common.concurrency import BackgroundTask
from berth.ecr import repository, retention
from berth.ecr.destination import Destination, is_name_of_a_build, profile_problem, tag_problem
from berth.ecr.registry import verify
from berth.ecr.registry.manifest import Manifest
from berth.ecr.repository import RepositoryState, WantedRepository
from berth.ecr.repository_client import RepositoryClient
from berth.images.local_image import LocalImage


@dataclass(frozen=True)
class PushTask:
    """One image on its way to one repository.

    wanted: what the repository should be like, None where it is not AWS's; tags: the first is the image's exact one;
    apply: whether an existing repository will be made as wanted before the push, after which no tag of it moves.
    """

    image: LocalImage
    repository: RepositoryClient
    wanted: WantedRepository | None
    tags: tuple[str, ...]
    apply: bool


@dataclass(frozen=True)
class Preflight:
    """What a push meets: lines for the user, and the problems that forbid it.

    state: the repository as it is, None where there is none or where it is not AWS's; pushed: the exact tag names this
    very image already; warnings: on the tags that name another image now, and on what would expire.
    """

    task: PushTask
    lines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    state: RepositoryState | None = None
    pushed: bool = False
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what a dry run found."""
        image, destination = self.task.image, self.task.repository.destination
        return {
            "image": image.image,
            "derived": image.tag if image.derived else "",
            "profile": image.profile,
            "local_id": image.id,
            "host": destination.host,
            "repository": destination.repository,
            "tags": list(self.task.tags),
            "would": list(self.lines),
        }


def run_preflight(task: PushTask) -> Preflight:
    """Reads the repository and the tags."""
    image, client, wanted = task.image, task.repository, task.wanted
    ping = BackgroundTask(client.registry.ping)  # while AWS is asked
    state = repository.describe(client.ecr, client.name) if wanted is not None else None
    ping.result()
    exists = wanted is None or state is not None
    lines = repository_lines(client.destination, wanted, state)
    problems = repository.problems(wanted) if wanted is not None else []
    pushed = False
    warnings = [] if state is None or task.apply else expiring(task.tags, client.destination, state)
    lines += warnings
    for tag in task.tags:
        held = client.registry.manifest(client.name, tag) if exists else None
        if held is None:
            lines.append(f"{client}:{tag} will be pushed")
        elif _is_manifest_of(image, held, client):
            lines.append(f"{client}:{tag} is there already, with this image")
            pushed = pushed or tag == task.tags[0]
        elif problem := _tag_problem(task, tag, held, state):
            problems.append(problem)
        else:
            lines.append(f"{client}:{tag} will move from {held.digest[:19]}")
            warnings.append(f"{client}:{tag} moves from {held.digest[:19]}")
    return Preflight(task, tuple(lines), tuple(problems), state, pushed, tuple(warnings))


def _tag_problem(task: PushTask, tag: str, held: Manifest, state: RepositoryState | None) -> str:
    """Why the tag may not move from the image that holds it; empty if it may."""
    client = task.repository
    immutable = state is not None and (task.apply or not state.can_move(tag))
    its_labels = verify.image_labels(client.registry, client.name, held)
    return profile_problem(client.destination, tag, task.image.labels, its_labels) or tag_problem(
        tag, task.image, client.destination, immutable=immutable
    )


def expiring(tags: Sequence[str], destination: Destination, state: RepositoryState) -> list[str]:
    """That a release may expire in a repository with a lifecycle policy of its own, as a sentence; else nothing."""
    releases = [tag for tag in tags if not is_name_of_a_build(tag)]
    if not releases or retention.keeps_releases(state.lifecycle):
        return []
    return [
        f"{destination}: the lifecycle policy there may expire {', '.join(releases)}, for its first rule does not keep "
        f"what is tagged {retention.PREFIX}*: --apply puts the kit's, which does."
    ]


def repository_lines(
    destination: Destination, wanted: WantedRepository | None, state: RepositoryState | None
) -> list[str]:
    """What would become of a repository that is there, or is not; nothing on a registry that is not AWS's."""
    if wanted is None:
        return []
    if state is None:
        return [f"{destination}: will be created: {', '.join(repository.settings(wanted))}"]
    return [f"{destination}: {difference}" for difference in repository.differences(wanted, state)]


def _is_manifest_of(image: LocalImage, held: Manifest, client: RepositoryClient) -> bool:
    """Whether it is the manifest of this very image.

    The id of an image in containerd's store is no digest of its config: there its layers and labels are compared.
    """
    if held.config_digest is None or image.id_is_config:
        return held.config_digest == image.id
    config = json.loads(client.registry.blob(client.name, held.config_digest))
    layers = tuple((config.get("rootfs") or {}).get("diff_ids") or ())
    return (layers, (config.get("config") or {}).get("Labels") or {}) == (image.diff_ids, dict(image.labels))
