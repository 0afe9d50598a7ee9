"""`build.py push`: several images to several repositories, looked at first, tested, then released side by side."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import docker

from berth.common.concurrency import BackgroundTask, run_parallel
from berth.common.errors import UserError, refuse
from berth.ecr import documents, record, repository
from berth.ecr.aws import Aws
from berth.ecr.destination import Destination, image_problems
from berth.ecr.push.events import LayerState
from berth.ecr.push.one import Preflight, PushTask, Released, open_repositories, preflight, release
from berth.images.inventory import debian, sbom
from berth.images.local_image import LocalImage

Say = Callable[[str], None]
_BILL_ENDS_S = 10.0


@dataclass(frozen=True)
class PushOptions:
    """What the user asked for beside images and places.

    tags: further ones beside each image's exact tag; pull_accounts, sagemaker: who may pull; apply: whether an existing
    repository's settings are changed.
    """

    tags: tuple[str, ...] = ()
    lifecycle: documents.Document = field(default_factory=documents.lifecycle)
    pull_accounts: tuple[str, ...] = ()
    sagemaker: bool = False
    kms_key: str | None = None
    apply: bool = False

    def repository(self, place: Destination) -> repository.Wanted | None:
        """What the repository should be like; None where it is not AWS's."""
        if place.ecr is None:
            return None
        pull = None
        if self.pull_accounts or self.sagemaker:
            pull = documents.pull(place.ecr, self.pull_accounts, sagemaker=self.sagemaker)
        return repository.Wanted(
            place.repository,
            kms_key=self.kms_key,
            lifecycle=self.lifecycle,
            pull=pull,
        )


def jobs(places: Mapping[LocalImage, Sequence[Destination]], wish: PushOptions, aws: Aws, say: Say) -> list[PushTask]:
    """One for each image and place; UserError with everything that forbids an image."""
    refuse(*(image_problems(image, wish.tags) for image in places))
    pairs = [(image, place) for image, its in places.items() for place in its]
    doors = open_repositories([place for _, place in pairs], aws, say)
    return [
        PushTask(image, door, wish.repository(place), tuple(dict.fromkeys((image.exact, *wish.tags))))
        for (image, place), door in zip(pairs, doors, strict=True)
    ]


def look(jobs: Sequence[PushTask], *, apply: bool) -> tuple[list[tuple[PushTask, Preflight]], list[str]]:
    """The jobs that nothing forbids, each with what it meets, and why the others can't be done. Reads only."""
    good: list[tuple[PushTask, Preflight]] = []
    failures: list[str] = []
    for job, seen in zip(jobs, run_parallel(jobs, lambda job, _: preflight(job, apply=apply)), strict=True):
        if isinstance(seen, UserError):
            failures.append(str(seen))
            continue
        failures += seen.problems
        if not seen.problems:
            good.append((job, seen))
    return good, failures


def would(job: PushTask, seen: Preflight) -> dict[str, Any]:
    """For JSON: what a dry run found."""
    place = job.door.destination
    return {
        "image": job.image.image,
        "derived": job.image.tag if job.image.derived else "",
        "profile": job.image.profile,
        "local_id": job.image.id,
        "host": place.host,
        "repository": place.repository,
        "tags": list(job.tags),
        "would": list(seen.lines),
    }


def publish(
    client: docker.DockerClient,
    looked: Sequence[tuple[PushTask, Preflight]],
    dist: Path,
    wish: PushOptions,
    *,
    say: Say,
    show: Callable[[Destination, LayerState], None],
) -> tuple[list[Released], list[str]]:
    """Releases each job that `look` has just found good, and puts those that ended well on record in `dist`, with their
    bills of materials. Gives them, and why the others failed.
    """
    record.check(dist / record.NAME)

    def bill_of(image: LocalImage) -> Path:
        made = sbom.image_bill(client, image.id)
        if image.derived:
            return sbom.write(sbom.named(made, *image.own_name), dist / sbom.own_file_name(*image.own_name))
        if moved := debian.moved_on(debian.record_path(image.profile).read_text(), made.packages, image.profile):
            say(moved)
        return sbom.write(made, dist / sbom.file_name(image.image, image.exact))

    # One push at a time to each registry: the layers that images share go once, where it takes those of the second from
    # the repository of the first.
    turns = {job.door.destination.host: threading.Lock() for job, _ in looked}
    written = {
        image: BackgroundTask(partial(bill_of, image), at_once=False) for image in {job.image for job, _ in looked}
    }

    def one(each: tuple[PushTask, Preflight], stopped: threading.Event) -> Released:
        job, seen = each
        done = release(
            client,
            job,
            seen,
            written[job.image].result,
            apply=wish.apply,
            say=say,
            show=lambda state: show(job.door.destination, state),
            turn=turns[job.door.destination.host],
            stopped=stopped,
        )
        record.keep([done.pushed], dist / record.NAME)
        say(done.summary())
        return done

    try:
        done = run_parallel(looked, one)
    finally:
        # A bill that is being made has a container, which goes when it ends.
        for each in written.values():
            each.settle(_BILL_ENDS_S)
    failures = [str(each) for each in done if isinstance(each, UserError)]
    return [each for each in done if not isinstance(each, UserError)], failures
