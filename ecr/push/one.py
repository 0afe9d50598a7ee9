"""From a built image to its place in a registry: look, prepare the repository, push, check, attach the bill.

`preflight` only reads, and says everything that is in the way; `release` acts on what it found. Both are for one image
and one repository.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import docker

from berth.common.concurrency import BackgroundTask
from berth.common.errors import UserError
from berth.ecr import repository, retention
from berth.ecr.aws import Aws
from berth.ecr.destination import Destination, is_name_of_a_build, tag_problem
from berth.ecr.login import EcrLogin, StoredLogin
from berth.ecr.push import engine as pushing
from berth.ecr.push.events import LayerState, sent_and_there, with_few_left
from berth.ecr.record import Pushed
from berth.ecr.registry import referrers, verify
from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import Manifest
from berth.ecr.registry.references import Reference
from berth.ecr.registry.transport import Transport
from berth.images.local_image import LocalImage

Say = Callable[[str], None]


@dataclass(frozen=True)
class RepositoryClient:
    """The way into a repository: the registry's own interface, and ECR's control plane where it is AWS's."""

    destination: Destination
    registry: Registry
    login: EcrLogin | StoredLogin
    ecr: Any = None


def open_repositories(destinations: Sequence[Destination], aws: Aws, say: Say) -> list[RepositoryClient]:
    """A door to each; those of one registry share its connections and its login. No registry is asked yet."""
    doors: dict[str, RepositoryClient] = {}
    for place in destinations:
        if place.host not in doors:
            login = StoredLogin(place.host) if place.ecr is None else aws.login(place.ecr.region, fips=place.ecr.fips)
            ecr = None if place.ecr is None else aws.ecr(place.ecr)
            doors[place.host] = RepositoryClient(place, Registry(Transport(place.host, login, say=say)), login, ecr)
    return [replace(doors[place.host], destination=place) for place in destinations]


@dataclass(frozen=True)
class PushTask:
    """One image on its way to one repository.

    wanted: what the repository should be like, None where it is not AWS's; tags: the first is the image's exact one.
    """

    image: LocalImage
    door: RepositoryClient
    wanted: repository.WantedRepository | None
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Preflight:
    """What a push meets: lines for the user, and the problems that forbid it.

    there: the repository as it is, None where there is none or where it is not AWS's; pushed: the exact tag names this
    very image already; warnings: on the tags that name another image now, and on what would expire.
    """

    lines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    there: repository.RepositoryState | None = None
    pushed: bool = False
    warnings: tuple[str, ...] = ()


def preflight(job: PushTask, *, apply: bool) -> Preflight:
    """Reads the repository and the tags.

    apply: whether the repository will be made as it should be before the push, after which no tag of it moves.
    """
    image, door, wanted = job.image, job.door, job.wanted
    place = door.destination
    meeting = BackgroundTask(door.registry.ping)  # while AWS is asked
    there = repository.describe(door.ecr, place.repository) if wanted is not None else None
    meeting.result()
    exists = wanted is None or there is not None
    lines = repository_lines(place, wanted, there)
    problems = repository.problems(wanted) if wanted is not None else []
    pushed = False
    warnings = [] if there is None or apply else expiring(job.tags, place, there)
    lines += warnings
    for tag in job.tags:
        held = door.registry.manifest(place.repository, tag) if exists else None
        if held is None:
            lines.append(f"{place}:{tag} will be pushed")
        elif _is(image, held, door):
            lines.append(f"{place}:{tag} is there already, with this image")
            pushed = pushed or tag == job.tags[0]
        elif problem := tag_problem(
            tag, image, place, immutable=there is not None and (apply or not there.can_move(tag))
        ):
            problems.append(problem)
        else:
            lines.append(f"{place}:{tag} will move from {held.digest[:19]}")
            warnings.append(f"{place}:{tag} moves from {held.digest[:19]}")
    return Preflight(tuple(lines), tuple(problems), there, pushed, tuple(warnings))


def expiring(tags: Sequence[str], place: Destination, there: repository.RepositoryState) -> list[str]:
    """That a release may expire in a repository with a lifecycle policy of its own, as a sentence; else nothing."""
    releases = [tag for tag in tags if not is_name_of_a_build(tag)]
    if not releases or retention.keeps_releases(there.lifecycle):
        return []
    return [
        f"{place}: the lifecycle policy there may expire {', '.join(releases)}, for its first rule does not keep what "
        f"is tagged {retention.PREFIX}*: --apply puts the kit's, which does."
    ]


def repository_lines(
    place: Destination, wanted: repository.WantedRepository | None, there: repository.RepositoryState | None
) -> list[str]:
    """What would become of a repository that is `there`, or is not; nothing on a registry that is not AWS's."""
    if wanted is None:
        return []
    if there is None:
        return [f"{place}: will be created: {', '.join(repository.settings(wanted))}"]
    return [f"{place}: {difference}" for difference in repository.differences(wanted, there)]


@dataclass(frozen=True)
class Released:
    """A finished push: what goes on record, and what it took. Bytes are compressed ones."""

    pushed: Pushed
    bytes_sent: int
    bytes_there: int
    seconds: float
    scan: dict[str, int] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what is on record, and what this push took."""
        took = {"bytes_sent": self.bytes_sent, "bytes_there": self.bytes_there, "seconds": round(self.seconds, 1)}
        return {**self.pushed.as_dict(), **took, "scan": self.scan}

    def summary(self) -> str:
        """One line: how much of the image went, and how long that took."""
        share = self.bytes_sent / ((self.bytes_sent + self.bytes_there) or 1)
        if not self.bytes_there:
            went = "the whole image was sent"
        else:
            went = (
                f"{share:.1%} of the image was sent, the rest was there" if self.bytes_sent else "all of it was there"
            )
        return f"{self.pushed.host}/{self.pushed.repository}: {went}, {self.seconds:.1f} s"


def release(
    client: docker.DockerClient,
    job: PushTask,
    seen: Preflight,
    bill: Callable[[], Path],
    *,
    apply: bool,
    say: Say,
    show: Callable[[LayerState], None],
    turn: threading.Lock,
    stopped: threading.Event,
) -> Released:
    """Pushes the image under its tags, and gives what is in the registry then.

    seen: what `preflight` has found; bill: waits for the file of its bill of materials, which is attached to it; turn:
    held while the engine pushes; stopped: set by another thread, ends a push.
    """
    began = time.monotonic()
    image, door, tags = job.image, job.door, job.tags
    place = door.destination
    if job.wanted is not None:
        repository.ensure(door.ecr, job.wanted, seen.there, apply=apply, say=say)
    for warning in seen.warnings:
        say(warning)
    # The bill goes up while the engine pushes; only its manifest has to come after the image's. To make it takes a core
    # for seconds, so it waits until this push leaves one idle.
    laid = BackgroundTask(lambda: _lay(door, bill()), at_once=False)
    built = verify.Built(image.id if image.id_is_config else None, image.diff_ids)
    sent: frozenset[str] = frozenset()
    first = tags[0]
    if not seen.pushed:
        # A push of containerd's store may be an index, which must not lie under a tag that can't be moved again.
        first = tags[0] if image.pushes_docker_manifest else f"converting-{image.id[-12:]}"
        cores = os.cpu_count() or 1  # the engine packs each layer on one of them
        watch = with_few_left(len(set(image.diff_ids)), cores, show, laid.start)
        if turn.locked():
            say(f"{place}: waits until the push before it is done, for what both have in common")
        with turn:
            began = time.monotonic()  # waiting is no part of what a push takes
            sent = _push(client, image, place.reference(first), door, say, watch, stopped)
    laid.start()
    checked = verify.verify_and_tag(door.registry, place.repository, first, [tags[0]], built)
    if place.ecr is not None:
        tags = retention.tags(tags, checked.digest)
    # The last one first: what a broken connection leaves under a release tag is kept already.
    verify.name(door.registry, place.repository, checked, tags[:0:-1])
    layers = [(layer.digest, layer.size) for layer in checked.manifest.layers]
    bytes_sent, bytes_there = sent_and_there(image.diff_ids, layers, sent)
    scan = BackgroundTask(lambda: _scan(door, checked.digest))
    document, content = laid.result()
    attached = referrers.attach(door.registry, place.repository, checked.manifest, content)
    if first not in tags:
        if door.ecr is not None:
            repository.delete_tag(door.ecr, place.repository, first)
        else:
            door.registry.delete_tag(place.repository, first)
    return Released(
        Pushed(
            image=image.image,
            profile=image.profile,
            host=place.host,
            repository=place.repository,
            digest=checked.digest,
            config=str(checked.manifest.config_digest),
            local_id=image.id,
            tags=tuple(tags),
            version=image.version,
            revision=image.revision,
            pins=image.pins,
            compressed=sum(dict(layers).values()),
            size=image.size,
            built=image.built,
            pushed=datetime.now(UTC).isoformat(timespec="seconds"),
            bill={"file": document, "digest": attached},
            derived=image.tag if image.derived else "",
        ),
        bytes_sent,
        bytes_there,
        time.monotonic() - began,
        scan.result(),
    )


def _scan(door: RepositoryClient, digest: str) -> dict[str, int] | None:
    """What ECR's scan has found by now; nothing about it makes a push that is done fail."""
    if door.ecr is None:
        return None
    try:
        return repository.scan_summary(door.ecr, door.destination.repository, digest)
    except UserError:
        return None


def _lay(door: RepositoryClient, bill: Path) -> tuple[str, bytes]:
    """Has the file in the repository, as a blob; gives its name and what is in it."""
    content = bill.read_bytes()
    referrers.upload_blobs(door.registry, door.destination.repository, content)
    return bill.name, content


def _is(image: LocalImage, held: Manifest, door: RepositoryClient) -> bool:
    """Whether a tag names this very image already.

    The id of an image in containerd's store is no digest of its config: there its layers and labels are compared.
    """
    if held.config_digest is None or image.id_is_config:
        return held.config_digest == image.id
    config = json.loads(door.registry.blob(door.destination.repository, held.config_digest))
    layers = tuple((config.get("rootfs") or {}).get("diff_ids") or ())
    return (layers, (config.get("config") or {}).get("Labels") or {}) == (image.diff_ids, dict(image.labels))


def _push(
    client: docker.DockerClient,
    image: LocalImage,
    reference: Reference,
    door: RepositoryClient,
    say: Say,
    show: Callable[[LayerState], None],
    stopped: threading.Event,
) -> frozenset[str]:
    """The layers that went, by the first digits of their diff ids."""
    with pushing.tagged(client, image.id, reference):
        return pushing.push(client, reference, door.login, show=show, say=say, stopped=stopped).layers
