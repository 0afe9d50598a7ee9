"""Several images to several repositories: a preflight for each pair, then the pushes in parallel."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from docker import DockerClient

from berth.common import engine
from berth.common.concurrency import BackgroundTask, run_parallel
from berth.common.errors import UserError, refuse
from berth.ecr.push.context import PushContext, Say
from berth.ecr.push.engine import SILENCE_S
from berth.ecr.push.events import ShowLayer
from berth.ecr.push.one import PushResult, push_one
from berth.ecr.push.options import PushOptions
from berth.ecr.push.preflight import Preflight, PushTask, run_preflight
from berth.ecr.repositories import record
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.destination import destinations, image_problems
from berth.ecr.repositories.repository_client import open_repositories
from berth.images.inspect import sbom
from berth.images.local_image import LocalImage
from berth.images.selection import require_images, select_images

_BILL_ENDS_S = 10.0


def choose_images(options: PushOptions) -> tuple[DockerClient, list[LocalImage]]:
    """The engine, and the images to push; UserError with all problems of the options.

    For berth's images the options are checked before connecting to the engine; for a user's own image they depend on
    the image.
    """
    if options.named_image is None:
        refuse(options.problems(options.images, derived=False))
        require_images(options.images, options.profile)
    client = engine.connect(timeout_s=SILENCE_S)
    chosen = select_images(client, options.images, options.profile, options.named_image)
    if options.named_image is not None:
        titles = [each.title for each in chosen if each.title]
        refuse(options.problems(titles, derived=any(each.derived for each in chosen)))
    info = client.info()
    return client, [replace(each, info=info) for each in chosen]


def plan_tasks(options: PushOptions, images: Sequence[LocalImage], say: Say) -> list[PushTask]:
    """A task per image and repository. UserError if an image must not be pushed."""
    refuse(*(image_problems(each, options.tags) for each in images))
    aws = Aws()
    registries = [] if options.host is not None else aws.registries(options.regions, options.accounts)
    pairs = [
        (image, destination)
        for image in images
        for destination in destinations(
            image.title, registries, options.host, options.repository, derived=image.derived
        )
    ]
    repositories = open_repositories([destination for _, destination in pairs], aws, say, images[0].info)
    return [
        PushTask(
            image,
            client,
            options.wanted_repository(client),
            tuple(dict.fromkeys((image.push_tag, *options.tags))),
            options.apply,
        )
        for (image, _), client in zip(pairs, repositories, strict=True)
    ]


def preflight_all(tasks: Sequence[PushTask]) -> tuple[list[Preflight], list[str]]:
    """The preflights of the tasks that can be done, and sentences about the others. Only reads."""
    ready: list[Preflight] = []
    failures: list[str] = []
    for outcome in run_parallel(tasks, lambda task, _: run_preflight(task)):
        if isinstance(outcome, UserError):
            failures.append(str(outcome))
            continue
        failures += outcome.problems
        if not outcome.problems:
            ready.append(outcome)
    return ready, failures


def push_many(
    client: DockerClient,
    ready: Sequence[Preflight],
    dist: Path,
    *,
    say: Say,
    show: ShowLayer,
) -> tuple[list[PushResult], list[str]]:
    """Pushes the tasks that passed their preflight, and records each success in `dist`, with its bill of materials.
    Returns the results, and sentences about the failures.
    """
    record.check(dist / record.NAME)
    # One push at a time per registry: a registry that can mount layers from another repository then gets the layers
    # that the images share only once.
    turns = {each.task.repository.registry.host: threading.Lock() for each in ready}
    bills = {
        image: BackgroundTask(partial(_write_bill, client, image, dist))
        for image in {each.task.image for each in ready}
    }

    def push(each: Preflight, stopped: threading.Event) -> PushResult:
        goal = each.task.repository
        context = PushContext(client, stopped, say, partial(show, str(goal)))
        result = push_one(context, each, bills[each.task.image].result, turns[goal.registry.host])
        record.keep([result.pushed], dist / record.NAME)
        say(result.summary())
        return result

    try:
        results = run_parallel(ready, push)
    finally:
        # A bill in progress has a container, which is removed when it ends.
        for each in bills.values():
            each.settle(_BILL_ENDS_S)
    failures = [str(each) for each in results if isinstance(each, UserError)]
    return [each for each in results if not isinstance(each, UserError)], failures


def _write_bill(client: DockerClient, image: LocalImage, dist: Path) -> Path:
    """Writes the image's bill of materials; returns the file."""
    bill = sbom.image_bill(client, image.id)
    return sbom.write(bill, dist, image.repository, image.push_tag, derived=image.derived)
