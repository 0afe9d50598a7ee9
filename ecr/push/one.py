"""One image to one repository: prepare the repository, push, verify, attach the bill of materials."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
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
from berth.ecr.push.events import sent_and_there
from berth.ecr.push.preflight import Preflight, PushTask
from berth.ecr.registry import referrers, verify
from berth.ecr.registry.manifest import Manifest
from berth.ecr.registry.references import Reference
from berth.ecr.repositories import repository, retention
from berth.ecr.repositories.record import Pushed
from berth.ecr.repositories.repository_client import RepositoryClient


@dataclass(frozen=True)
class PushResult:
    """A finished push: the entry for the record, and the effort. Bytes are compressed ones."""

    pushed: Pushed
    bytes_sent: int
    bytes_there: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The record's entry and the effort of this push, for JSON."""
        effort = {"bytes_sent": self.bytes_sent, "bytes_there": self.bytes_there, "seconds": round(self.seconds, 1)}
        return {**self.pushed.as_dict(), **effort}

    def summary(self) -> str:
        """One line: the share of the image that was sent, and the seconds."""
        share = self.bytes_sent / ((self.bytes_sent + self.bytes_there) or 1)
        if not self.bytes_there:
            sent = "the whole image was sent"
        else:
            sent = (
                f"{share:.1%} of the image was sent, the rest was there" if self.bytes_sent else "all of it was there"
            )
        return f"{self.pushed.host}/{self.pushed.repository}: {sent}, {self.seconds:.1f} s"


def push_one(context: PushContext, ready: Preflight, bill: Callable[[], Path], turn: threading.Lock) -> PushResult:
    """Pushes the image with all its tags, and attaches its bill of materials.

    ready: its preflight; bill: waits for the bill's file, and returns it; turn: held while the engine pushes.
    """
    began = time.monotonic()
    task, image, client = ready.task, ready.task.image, ready.task.repository
    if task.wanted is not None:
        repository.ensure(client.ecr, task.wanted, ready.state, apply=task.apply, say=context.say)
    for warning in ready.warnings:
        context.say(warning)
    # The bill is uploaded while the engine pushes; only its manifest must follow the image's.
    bill_upload = BackgroundTask(partial(_upload_bill, client, bill))
    sent: frozenset[str] = frozenset()
    tag = task.tags[0]
    if not ready.pushed:
        # A push from containerd's store may be an index, which must not get a tag that can't be moved afterwards.
        tag = task.tags[0] if image.pushes_docker_manifest else f"converting-{image.id[-12:]}"
        if turn.locked():
            context.say(f"{client}: waits for the push before it, because the images share layers")
        with turn:
            began = time.monotonic()  # the wait is not part of the push
            sent = _push_layers(context, task, tag)
    manifest, tags = _put_tags(task, tag)
    layers = [(layer.digest, layer.size) for layer in manifest.layers]
    bytes_sent, bytes_there = sent_and_there(image.diff_ids, layers, sent)
    # The push has succeeded: from here on problems are warnings.
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
    """Attaches the bill of materials; returns its file and its digest in the registry. If that fails, prints a line and
    returns None: the engine may keep no logs to read the bill from, or the registry may not accept artifacts.
    """
    try:
        file, content = upload.result()
        attached = referrers.attach(client.registry, client.name, manifest, content)
        if is_release and client.ecr is not None:
            retention.keep(client.registry, client.name, attached)
        return {"file": file, "digest": attached.digest}
    except (UserError, DockerException, RequestException, HTTPError, OSError) as error:
        context.say(f"{client}: the image is pushed, its bill of materials is not attached: {error}")
        return None


def _push_layers(context: PushContext, task: PushTask, tag: str) -> frozenset[str]:
    """Lets the engine push; returns the layers that were sent, by the engine's names."""
    client = task.repository
    reference = Reference(client.registry.host, client.name, tag)
    with tagged(context.client, task.image.id, reference):
        return push_with_retries(context, reference, client.login)


def _put_tags(task: PushTask, pushed_tag: str) -> tuple[Manifest, tuple[str, ...]]:
    """Verifies the manifest of the pushed image and puts all tags on it; returns both."""
    image, client, tags = task.image, task.repository, task.tags
    expected = verify.ExpectedImage(image.id if image.id_is_config else None, image.diff_ids)
    manifest = verify.verify_and_tag(client.registry, client.name, pushed_tag, [tags[0]], expected)
    if client.ecr is not None:
        tags = retention.tags(tags, manifest.digest)
    # The last tag (`release-…`) first: if the connection breaks, an image with a release tag never expires.
    verify.put_tags(client.registry, client.name, manifest, tags[:0:-1])
    return manifest, tags


def _delete_tag(context: PushContext, client: RepositoryClient, tag: str) -> None:
    """Removes the temporary tag of the engine's push; prints a line if that fails."""
    if client.ecr is None:
        client.registry.delete_tag(client.name, tag)
        return
    try:
        repository.delete_tag(client.ecr, client.name, tag)
    except UserError as error:
        context.say(f"{client}: the image is pushed, the temporary tag {tag} stays: {error}")


def _entry(task: PushTask, tags: tuple[str, ...], manifest: Manifest, bill: dict[str, str] | None) -> Pushed:
    """The entry for the record. bill: its file, and its digest in the registry."""
    image, client = task.image, task.repository
    return Pushed(
        image=image.image,
        profile=image.profile,
        host=client.registry.host,
        repository=client.name,
        digest=manifest.digest,
        config=str(manifest.config_digest),
        local_id=image.id,
        tags=tags,
        version=image.version,
        revision=image.revision,
        pins=image.pins,
        compressed=sum({layer.digest: layer.size for layer in manifest.layers}.values()),
        size=image.size,
        built=str(image.attrs.get("Created", "")),
        pushed=datetime.now(UTC).isoformat(timespec="seconds"),
        bill=bill,
        derived=image.name if image.derived else "",
    )


def _upload_bill(client: RepositoryClient, bill: Callable[[], Path]) -> tuple[str, bytes]:
    """Uploads the bill's file as a blob; returns its name and content."""
    file = bill()
    content = file.read_bytes()
    referrers.upload_blobs(client.registry, client.name, content)
    return file.name, content
