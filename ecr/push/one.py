"""One image to one repository: prepare the repository, push, verify, attach the bill of materials."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from docker.errors import DockerException
from requests import RequestException
from urllib3.exceptions import HTTPError

from berth.common.concurrency import BackgroundTask
from berth.common.errors import UserError
from berth.ecr.push.context import PushContext
from berth.ecr.push.engine import push_with_retries, tagged
from berth.ecr.push.events import sent_and_there, with_few_left
from berth.ecr.push.preflight import Preflight, PushTask
from berth.ecr.registry import referrers, verify
from berth.ecr.registry.manifest import Manifest
from berth.ecr.repositories import repository, retention
from berth.ecr.repositories.record import Pushed
from berth.ecr.repositories.repository_client import RepositoryClient


@dataclass(frozen=True)
class PushResult:
    """A finished push: what goes on record, and what it took. Bytes are compressed ones."""

    pushed: Pushed
    bytes_sent: int
    bytes_there: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what is on record, and what this push took."""
        took = {"bytes_sent": self.bytes_sent, "bytes_there": self.bytes_there, "seconds": round(self.seconds, 1)}
        return {**self.pushed.as_dict(), **took}

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


def push_one(context: PushContext, ready: Preflight, bill: Callable[[], Path], turn: threading.Lock) -> PushResult:
    """Pushes the image under its tags, and gives what is in the registry then.

    ready: what was found before; bill: waits for the file of its bill of materials, which is attached to it; turn: held
    while the engine pushes.
    """
    began = time.monotonic()
    task, image, client = ready.task, ready.task.image, ready.task.repository
    if task.wanted is not None:
        repository.ensure(client.ecr, task.wanted, ready.state, apply=task.apply, say=context.say)
    for warning in ready.warnings:
        context.say(warning)
    # The bill goes up while the engine pushes; only its manifest has to come after the image's. To make it takes a core
    # for seconds, so it waits until this push leaves one idle.
    bill_upload = BackgroundTask(partial(_upload_bill, client, bill), start_now=False)
    sent: frozenset[str] = frozenset()
    tag = task.tags[0]
    if not ready.pushed:
        # A push of containerd's store may be an index, which must not lie under a tag that can't be moved again.
        tag = task.tags[0] if image.pushes_docker_manifest else f"converting-{image.id[-12:]}"
        if turn.locked():
            context.say(f"{client}: waits until the push before it is done, for what both have in common")
        with turn:
            began = time.monotonic()  # waiting is no part of what a push takes
            sent = _push_layers(context, task, tag, bill_upload.start)
    bill_upload.start()
    manifest, tags = _put_tags(task, tag)
    layers = [(layer.digest, layer.size) for layer in manifest.layers]
    bytes_sent, bytes_there = sent_and_there(image.diff_ids, layers, sent)
    # The push has succeeded: what goes wrong from here on is a warning.
    attached = _attach_bill(context, client, manifest, bill_upload, is_release=retention.is_release(tags))
    if tag not in tags:
        _delete_tag(context, client, tag)
    pushed = _entry(task, tags, manifest, attached)
    return PushResult(pushed, bytes_sent, bytes_there, time.monotonic() - began)


def _attach_bill(
    context: PushContext,
    client: RepositoryClient,
    manifest: Manifest,
    upload: BackgroundTask[tuple[str, bytes]],
    *,
    is_release: bool,
) -> dict[str, str] | None:
    """The file of the bill of materials and the digest of its artifact in the registry; None, with a line, if it could
    not be made or attached: an engine may keep no logs to read it from, a registry may take no artifacts.
    """
    try:
        file, content = upload.result()
        attached = referrers.attach(client.registry, client.name, manifest, content)
        if is_release and client.destination.ecr is not None:
            retention.keep(client.registry, client.name, attached)
        return {"file": file, "digest": attached.digest}
    except (UserError, DockerException, RequestException, HTTPError, OSError) as error:
        context.say(f"{client}: the image is pushed, its bill of materials is not attached: {error}")
        return None


def _push_layers(context: PushContext, task: PushTask, tag: str, start_bill: Callable[[], None]) -> frozenset[str]:
    """The layers that went, by the first digits of their diff ids; start_bill: called once a core is idle."""
    cores = os.cpu_count() or 1  # the engine packs each layer on one of them
    show = with_few_left(len(set(task.image.diff_ids)), cores, context.show, start_bill)
    reference = task.repository.destination.reference(tag)
    with tagged(context.client, task.image.id, reference):
        return push_with_retries(replace(context, show=show), reference, task.repository.login)


def _put_tags(task: PushTask, pushed_tag: str) -> tuple[Manifest, tuple[str, ...]]:
    """Puts the manifest of what was pushed under all its tags; gives it, and them."""
    image, client, tags = task.image, task.repository, task.tags
    expected = verify.ExpectedImage(image.id if image.id_is_config else None, image.diff_ids)
    manifest = verify.verify_and_tag(client.registry, client.name, pushed_tag, [tags[0]], expected)
    if client.destination.ecr is not None:
        tags = retention.tags(tags, manifest.digest)
    # The last one first: what a broken connection leaves under a release tag is kept already.
    verify.put_tags(client.registry, client.name, manifest, tags[:0:-1])
    return manifest, tags


def _delete_tag(context: PushContext, client: RepositoryClient, tag: str) -> None:
    """Takes away the tag under which the engine pushed; if that can't be done, a line says so."""
    if client.ecr is None:
        client.registry.delete_tag(client.name, tag)
        return
    try:
        repository.delete_tag(client.ecr, client.name, tag)
    except UserError as error:
        context.say(f"{client}: the image is pushed, the temporary tag {tag} stays: {error}")


def _entry(task: PushTask, tags: tuple[str, ...], manifest: Manifest, bill: dict[str, str] | None) -> Pushed:
    """For the record; bill: its file, and the digest of the artifact in the registry."""
    image, destination = task.image, task.repository.destination
    return Pushed(
        image=image.image,
        profile=image.profile,
        host=destination.host,
        repository=destination.repository,
        digest=manifest.digest,
        config=str(manifest.config_digest),
        local_id=image.id,
        tags=tags,
        version=image.version,
        revision=image.revision,
        pins=image.pins,
        compressed=sum({layer.digest: layer.size for layer in manifest.layers}.values()),
        size=image.size,
        built=image.built,
        pushed=datetime.now(UTC).isoformat(timespec="seconds"),
        bill=bill,
        derived=image.name if image.derived else "",
    )


def _upload_bill(client: RepositoryClient, bill: Callable[[], Path]) -> tuple[str, bytes]:
    """Has the file in the repository, as a blob; gives its name and what is in it."""
    file = bill()
    content = file.read_bytes()
    referrers.upload_blobs(client.registry, client.name, content)
    return file.name, content
