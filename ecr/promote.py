"""An image from one registry to another without an engine: its blobs one by one, then its manifest byte for byte.

`look` only reads, and says what has to go; `promote` does it, a few blobs at a time. What the target has already is not
sent again, so that a promotion that was cut off goes on where it was. What is attached to the image goes with it.
"""

import difflib
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from berth.common import labels
from berth.common.concurrency import run_parallel
from berth.common.console import counted
from berth.common.errors import UserError, refuse
from berth.ecr import retention
from berth.ecr.destination import is_of_a_build
from berth.ecr.names import parse_host
from berth.ecr.registry import referrers, verify
from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import Descriptor, Manifest
from berth.ecr.registry.references import lists_referrers
from berth.images.local_image import doubles_problem, exact_tag, is_dirty

WORKERS = 4
Progress = Callable[[Descriptor, int], None]
"""Called with a blob that is sent and its bytes that have arrived; it may go back when a blob is sent again."""


@dataclass(frozen=True)
class Plan:
    """What happens to each blob: it is there, is mounted from another repository of the registry, or is sent."""

    there: tuple[Descriptor, ...]
    mount: tuple[Descriptor, ...]
    send: tuple[Descriptor, ...]


@dataclass(frozen=True)
class CopyPlan:
    """What is to be copied: an image, what is attached to it (as it is listed, and its manifest), and all blobs.

    tags: those that it gets, each with the digest that it names in the target now, None where it names nothing.
    """

    image: Manifest
    tags: Mapping[str, str | None]
    documents: tuple[tuple[Descriptor, Manifest], ...]
    blobs: Mapping[str, Descriptor]
    plan: Plan

    def summary(self) -> str:
        todo = (*self.plan.mount, *self.plan.send)
        return (
            f"{len(self.plan.there)} of {len(self.blobs)} blobs are there, "
            f"{sum(blob.size for blob in todo) / 1e6:.1f} MB to {'mount' if self.plan.mount else 'send'}"
            f"{', with what is attached to the image' if self.documents else ''}"
        )


@dataclass(frozen=True)
class Promoted:
    """A finished promotion: bytes put on the wire, those sent again included, bytes that did not need to go, and the
    tags that the image has got.
    """

    digest: str
    bytes_sent: int
    bytes_there: int
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A repository of a registry."""

    registry: Registry
    repository: str

    def __str__(self) -> str:
        return f"{self.registry.host}/{self.repository}"


def plan(blobs: Sequence[Descriptor], there: Collection[str], *, same_registry: bool) -> Plan:
    """there: digests of the blobs that the target repository has; the largest goes first, to end together."""
    missing = sorted((blob for blob in blobs if blob.digest not in there), key=lambda blob: (-blob.size, blob.digest))
    return Plan(
        tuple(blob for blob in blobs if blob.digest in there),
        tuple(missing) if same_registry else (),
        () if same_registry else tuple(missing),
    )


def look(origin: Place, reference: str, goal: Place, tags: Sequence[str]) -> CopyPlan:
    """What copying the image under a tag or digest would take.

    tags: without any, the image gets the tag of its build, for in ECR what has none expires. UserError where it is no
    image that SageMaker takes, and where nothing may publish it, or not under these tags.
    """
    manifest = origin.registry.manifest(origin.repository, reference)
    if manifest is None:
        raise UserError(_absent(origin, reference))
    checked = verify.checked(origin.registry, origin.repository, manifest, verify.ANYTHING)
    tags = tuple(tags) or _build_tag(origin, checked)
    refuse(_forbidden(f"{origin}@{checked.digest}", checked.labels, tags))
    if parse_host(goal.registry.host) is not None:
        tags = retention.tags(tags, checked.digest)
    documents = tuple(
        (document, referrers.read_manifest(origin.registry, origin.repository, document))
        for document in referrers.attached(origin.registry, origin.repository, checked.digest)
    )
    blobs = {blob.digest: blob for each in (checked.manifest, *(made for _, made in documents)) for blob in each.blobs}
    manifests = {tag: goal.registry.manifest(goal.repository, tag) for tag in tags}
    held = {tag: None if found is None else found.digest for tag, found in manifests.items()}
    refuse(_occupied(goal, held, checked.digest))
    sizes = _sizes(goal, list(blobs.values()))
    there = {digest for digest, size in zip(blobs, sizes, strict=True) if size is not None}
    todo = plan(list(blobs.values()), there, same_registry=origin.registry.host == goal.registry.host)
    return CopyPlan(checked.manifest, held, documents, blobs, todo)


def _build_tag(origin: Place, checked: verify.Checked) -> tuple[str, ...]:
    """The tag of the image's build, none of an image without the kit's labels; UserError where it may not be its own.

    What somebody built FROM the kit's image has the same labels, and is not that build.
    """
    tag = exact_tag(checked.labels)
    if not tag:
        return ()
    held = origin.registry.manifest(origin.repository, tag)
    if held is None or held.digest != checked.digest:
        raise UserError(
            f"{origin}@{checked.digest} has no tag {tag} there, so it may be an image that was built FROM that one: "
            "give TO a tag."
        )
    return (tag,)


def _absent(origin: Place, reference: str) -> str:
    """That there is no such image, and what there is instead, where the registry lets that be listed."""
    try:
        every = origin.registry.tags(origin.repository)
    except UserError:
        return f"{origin} has no image {reference}: look at its tags and digests, or push it there first."
    tags = [tag for tag in every if not lists_referrers(tag)]
    if not tags:
        return f"{origin} has no image {reference}, and no tag at all: see that this is the repository's name."
    near = difflib.get_close_matches(reference, tags, n=3, cutoff=0.4) or tags[-3:]
    others = f"{counted(len(tags), 'tag')}, such as {', '.join(near)}"
    return f"{origin} has no image {reference}, and {others}: give one of them."


def _forbidden(image: str, found: Mapping[str, str], tags: Sequence[str]) -> list[str]:
    """What its labels forbid, as a push does: a test's double anywhere, and uncommitted changes under another's tag."""
    problems = doubles_problem(image, found)
    revision = found.get(f"{labels.SOURCE}.revision", "")
    loose = [tag for tag in tags if is_dirty(revision) and not tag.endswith(revision)] if revision else []
    if loose:
        problems.append(
            f"{image} has uncommitted changes in it, so it can't be tagged {', '.join(loose)}: commit, build and push "
            "again, and promote that."
        )
    return problems


def _occupied(goal: Place, held: Mapping[str, str | None], digest: str) -> list[str]:
    """Builds' tags that name another image in the target, as a sentence each: a push moves none of them either."""
    return [
        f"{goal}:{tag} names another image, and the tag of a build does not move: use the image that is there, or give "
        "TO another tag or repository."
        for tag, other in held.items()
        if is_of_a_build(tag) and other not in (None, digest)
    ]


def tag_line(goal: Place, tag: str, held: str | None, digest: str) -> str:
    """What a promotion would do to a tag of the target; held: what the tag names there, digest: the image."""
    if held is None:
        return f"{goal}:{tag} will be put"
    if held == digest:
        return f"{goal}:{tag} is there already, with this image"
    return f"{goal}:{tag} will move from {held[:19]}, where the repository lets a tag move"


def promote(
    origin: Place,
    reference: str,
    goal: Place,
    tags: Sequence[str],
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress = lambda blob, arrived: None,
) -> Promoted:
    """Copies the image under a tag or digest to another repository, which exists, and puts `tags` on it there.

    UserError before anything is sent where it is no image that SageMaker takes, and at any later point with what is
    wrong; what has arrived by then is found and used by the next promotion.
    """
    found = look(origin, reference, goal, tags)
    image = found.image
    say(f"{goal}: {found.summary()}")
    for tag, held in found.tags.items():
        if held is not None and held != image.digest:
            say(f"{goal}:{tag} moves from {held[:19]}")
    sent = _copy(origin, goal, found.plan, progress)
    # By its digest first: with a tag that is refused the image is there, and the next promotion finds it.
    for name in (image.digest, *found.tags):
        goal.registry.put_manifest(goal.repository, name, image)
    for _, made in found.documents:
        referrers.put(goal.registry, goal.repository, image.digest, made)
    for name in (image.digest, *found.tags):
        _verify(goal, name, image)
    total = sum(blob.size for blob in found.blobs.values())
    there = total - sum(found.blobs[digest].size for digest in sent)
    return Promoted(image.digest, sum(sent.values()), there, tuple(found.tags))


def _copy(origin: Place, goal: Place, todo: Plan, progress: Progress) -> dict[str, int]:
    """Has all blobs in the target; gives the bytes put on the wire for each that was sent."""
    sent: dict[str, int] = {}

    def one(blob: Descriptor, stopped: threading.Event) -> None:
        mounted = blob in todo.mount and goal.registry.mount_blob(goal.repository, blob.digest, origin.repository)
        if not mounted:
            sent[blob.digest] = _send(origin, goal, blob, progress, stopped)

    _few_at_a_time((*todo.mount, *todo.send), one)
    return sent


def _send(origin: Place, goal: Place, blob: Descriptor, progress: Progress, stopped: threading.Event) -> int:
    def pieces(offset: int) -> Iterator[bytes]:
        for piece in origin.registry.read_blob(origin.repository, blob.digest, offset):
            if stopped.is_set():
                raise UserError(f"the copy of {blob.digest} was stopped: run this again, it goes on from there.")
            yield piece

    return goal.registry.upload_blob(
        goal.repository, blob.digest, blob.size, pieces, lambda arrived: progress(blob, arrived)
    )


def _sizes(goal: Place, blobs: Sequence[Descriptor]) -> list[int | None]:
    """The bytes that the target has of each blob; UserError where it has another number of them than the manifest."""
    sizes: dict[str, int | None] = {}

    def one(blob: Descriptor, _: threading.Event) -> None:
        size = sizes[blob.digest] = goal.registry.blob_size(goal.repository, blob.digest)
        if size not in (None, blob.size):
            raise UserError(
                f"{goal} has {size} bytes of {blob.digest}, which has {blob.size}: its storage is damaged, have the "
                "blob removed there."
            )

    _few_at_a_time(blobs, one)
    return [sizes[blob.digest] for blob in blobs]


def _few_at_a_time(blobs: Sequence[Descriptor], work: Callable[[Descriptor, threading.Event], None]) -> None:
    """Does it for each blob, in order, in a few threads; the first error stops the others and is raised."""
    waiting: queue.SimpleQueue[Descriptor] = queue.SimpleQueue()
    for blob in blobs:
        waiting.put(blob)
    first: list[UserError] = []

    def run(_: int, stopped: threading.Event) -> None:
        while not stopped.is_set():
            try:
                blob = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                work(blob, stopped)
            except UserError as error:
                first.append(error)
                stopped.set()

    run_parallel(range(min(WORKERS, len(blobs))), run)
    if first:
        raise first[0]


def _verify(goal: Place, name: str, image: Manifest) -> None:
    held = goal.registry.manifest(goal.repository, name)
    if held is None or held.digest != image.digest:
        raise UserError(
            f"{goal} was given {image.digest} as {name}, and has {held.digest if held else 'nothing'} there: another "
            "push may have taken the tag meanwhile, run this again."
        )
