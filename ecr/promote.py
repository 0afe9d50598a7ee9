"""Copies an image from one registry to another without an engine: first its blobs, then its unchanged manifest.

`plan_copy` only reads, and finds what is missing in the target; `copy_image` copies it, a few blobs at a time. Blobs
that the target has are not sent again, so an interrupted promotion resumes. Attached documents are copied, too.
"""

import difflib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from berth.common import labels
from berth.common.concurrency import run_all
from berth.common.errors import UserError, refuse
from berth.common.image_names import is_build_tag
from berth.contract.words import counted
from berth.ecr.push.events import LayerState, ShowLayer, short_id
from berth.ecr.registry import referrers, verify
from berth.ecr.registry.manifest import Descriptor, Manifest
from berth.ecr.registry.references import lists_referrers
from berth.ecr.repositories import retention
from berth.ecr.repositories.repository_client import RepositoryClient
from berth.ecr.repositories.tags import ChosenTag, TagOwner, choose_tags
from berth.images.local_image import digits_of, doubles_problem, is_dirty, push_tag

WORKERS = 4


@dataclass(frozen=True)
class CopyPlan:
    """What to copy: an image, the manifests of the documents attached to it, and all their blobs by digest.

    tags: of the image in the target; missing: blobs that the target lacks; same_registry: the registry may mount them
    from the source repository.
    """

    image: Manifest
    tags: tuple[ChosenTag, ...]
    documents: tuple[Manifest, ...]
    blobs: Mapping[str, Descriptor]
    missing: tuple[Descriptor, ...]
    same_registry: bool

    def summary(self) -> str:
        return (
            f"{len(self.blobs) - len(self.missing)} of {len(self.blobs)} blobs are there, "
            f"{sum(blob.size for blob in self.missing) / 1e6:.1f} MB to "
            f"{'mount' if self.missing and self.same_registry else 'send'}"
            f"{', with what is attached to the image' if self.documents else ''}"
        )


@dataclass(frozen=True)
class Promoted:
    """A finished promotion: the bytes of the blobs that were sent, of those that were not, and the image's tags."""

    digest: str
    bytes_sent: int
    bytes_there: int
    tags: tuple[str, ...]


def missing_blobs(blobs: Iterable[Descriptor], existing: Collection[str]) -> tuple[Descriptor, ...]:
    """The blobs whose digests are not in `existing`, largest first, so that the last transfers end together."""
    missing = (blob for blob in blobs if blob.digest not in existing)
    return tuple(sorted(missing, key=lambda blob: (-blob.size, blob.digest)))


def plan_copy(source: RepositoryClient, reference: str, target: RepositoryClient, tags: Sequence[str]) -> CopyPlan:
    """Plans the copy of an image; `reference` is its tag or digest, and the target need not exist yet.

    tags: default: the tag of its build, because untagged images expire in ECR. UserError if SageMaker does not accept
    the image, if it must not be published, or not with these tags.
    """
    image = source.registry.manifest(source.name, reference)
    if image is None:
        raise UserError(_not_found(source, reference))
    its_labels = verify.check_manifest(source.registry, source.name, image, verify.ANYTHING)
    tags = tuple(tags) or _build_tag(source, image, its_labels)
    refuse(_label_problems(f"{source}@{image.digest}", its_labels, tags))
    owner = TagOwner(its_labels, digits_of(str(image.config_digest)), lambda held: held.digest == image.digest)
    chosen = choose_tags(target, tags, owner)
    if target.ecr is not None:
        kept = retention.tags([each.tag for each in chosen], image.digest)
        chosen += choose_tags(target, kept[len(chosen) :], owner)
    refuse([each.problem for each in chosen if each.problem])
    documents = tuple(
        referrers.read_manifest(source.registry, source.name, document)
        for document in referrers.attached(source.registry, source.name, image.digest)
    )
    blobs = {blob.digest: blob for each in (image, *documents) for blob in each.blobs}
    sizes = _sizes(target, list(blobs.values()))
    missing = missing_blobs(blobs.values(), {digest for digest, size in sizes.items() if size is not None})
    return CopyPlan(image, tuple(chosen), documents, blobs, missing, source.registry.host == target.registry.host)


def _build_tag(source: RepositoryClient, image: Manifest, its_labels: Mapping[str, str]) -> tuple[str, ...]:
    """The tag of the image's build; empty if it lacks berth's labels. UserError if the tag is on another image.

    An image that a user built FROM berth's has the same labels, but is not that build.
    """
    if not its_labels.get(labels.KIT) or not its_labels.get(labels.PROFILE):
        return ()
    tag = push_tag(its_labels, its_labels[labels.PROFILE], digits_of(str(image.config_digest)))
    held = source.registry.manifest(source.name, tag)
    if held is None or held.digest != image.digest:
        raise UserError(
            f"{source}@{image.digest} does not have the tag {tag}, so it may be an image that was built FROM that one: "
            "give TO a tag, such as the image's own in FROM."
        )
    return (tag,)


def _not_found(source: RepositoryClient, reference: str) -> str:
    """A sentence for a missing image, with similar tags if the registry lists its tags."""
    try:
        all_tags = source.registry.tags(source.name)
    except UserError:
        return f"{source} has no image {reference}: look at its tags and digests, or push it there first."
    tags = [tag for tag in all_tags if not lists_referrers(tag)]
    if not tags:
        return f"{source} has no image {reference}, and no tag at all: check the repository's name."
    near = difflib.get_close_matches(reference, tags, n=3, cutoff=0.4) or tags[-3:]
    others = f"{counted(len(tags), 'tag')}, such as {', '.join(near)}"
    return f"{source} has no image {reference}, and {others}: give one of them."


def _label_problems(image: str, image_labels: Mapping[str, str], tags: Sequence[str]) -> list[str]:
    """Why the image's labels forbid a promotion, by the rules of a push: test doubles, or uncommitted changes in a
    release.
    """
    problems = doubles_problem(image, image_labels)
    releases = [tag for tag in tags if not is_build_tag(tag)]
    if releases and is_dirty(labels.revision(image_labels)):
        problems.append(
            f"{image} contains uncommitted changes, so it can't be tagged {', '.join(releases)}: commit, build and "
            "push again, and promote that."
        )
    return problems


def tag_lines(target: RepositoryClient, chosen: ChosenTag) -> list[str]:
    """Lines about what a promotion does to a tag of the target."""
    condition = "" if chosen.holder is None else ", if the repository lets a tag move"
    return [*([chosen.line] if chosen.line else []), f"{chosen.effect(target)}{condition}"]


def copy_image(
    source: RepositoryClient,
    target: RepositoryClient,
    plan: CopyPlan,
    *,
    say: Callable[[str], None] = lambda _: None,
    show: ShowLayer = lambda place, state: None,
) -> Promoted:
    """Copies the image of a plan to an existing repository, and tags it there.

    After a UserError the next promotion uses the blobs that have arrived.
    """
    image, tags = plan.image, tuple(dict.fromkeys(each.tag for each in plan.tags))
    say(f"{target}: {plan.summary()}")
    for each in plan.tags:
        if each.line or each.holder is not None:
            for line in tag_lines(target, each):
                say(line)
    sent = _copy_blobs(source, target, plan, show)
    # First by its digest: if the registry refuses a tag, the image is there for the next promotion.
    verify.put_tags(target.registry, target.name, image, (image.digest, *tags))
    try:
        for document in plan.documents:
            referrers.put(target.registry, target.name, image.digest, document)
            if target.ecr is not None and retention.is_release(tags):
                retention.keep(target.registry, target.name, document)
    except UserError as error:
        say(f"{target}: the image is copied, but the documents attached to it in FROM are not: {error}")
    total = sum(blob.size for blob in plan.blobs.values())
    return Promoted(image.digest, sent, total - sent, tags)


def _copy_blobs(source: RepositoryClient, target: RepositoryClient, plan: CopyPlan, show: ShowLayer) -> int:
    """Mounts or sends the missing blobs; returns the bytes of those that were sent."""

    def copy(blob: Descriptor, stopped: threading.Event) -> int:
        layer = short_id(blob.digest)
        if plan.same_registry and target.registry.mount_blob(target.name, blob.digest, source.name):
            show(str(target), LayerState(layer, end="mounted"))
            return 0

        def progress(arrived: int) -> None:
            show(str(target), LayerState(layer, arrived, blob.size))

        _send(source, target, blob, progress, stopped)
        show(str(target), LayerState(layer, end="sent"))
        return blob.size

    return sum(run_all(plan.missing, copy, workers=WORKERS))


def _send(
    source: RepositoryClient,
    target: RepositoryClient,
    blob: Descriptor,
    progress: Callable[[int], None],
    stopped: threading.Event,
) -> None:
    """Sends a blob. progress: called with the bytes that have arrived."""

    def pieces() -> Iterator[bytes]:
        for piece in source.registry.read_blob(source.name, blob.digest):
            if stopped.is_set():
                raise UserError(f"the copy of {blob.digest} was stopped: run this again to resume it.")
            yield piece

    target.registry.upload_blob(target.name, blob.digest, blob.size, pieces, progress)


def _sizes(target: RepositoryClient, blobs: Sequence[Descriptor]) -> dict[str, int | None]:
    """Each blob's size in the target, None if it is missing; UserError if it differs from the manifest's."""

    def size_in_target(blob: Descriptor, _: threading.Event) -> int | None:
        size = target.registry.blob_size(target.name, blob.digest)
        if size not in (None, blob.size):
            raise UserError(
                f"{target} has {size} bytes of {blob.digest}, which has {blob.size}: its storage is damaged, have the "
                "blob removed there."
            )
        return size

    return dict(zip((blob.digest for blob in blobs), run_all(blobs, size_in_target, workers=WORKERS), strict=True))
