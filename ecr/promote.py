"""An image from one registry to another without an engine: its blobs one by one, then its manifest byte for byte.

`plan_copy` only reads, and says what has to go; `copy_image` does it, a few blobs at a time. What the target has
already is not sent again, so that a promotion that was cut off goes on where it was. What is attached to the image goes
with it.
"""

import difflib
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from berth.common import labels
from berth.common.concurrency import run_all
from berth.common.console import counted
from berth.common.errors import UserError, refuse
from berth.common.image_names import is_build_tag
from berth.ecr.registry import referrers, verify
from berth.ecr.registry.manifest import Descriptor, Manifest
from berth.ecr.registry.references import lists_referrers
from berth.ecr.repositories import retention
from berth.ecr.repositories.names import parse_host
from berth.ecr.repositories.repository_client import RepositoryClient
from berth.ecr.repositories.tags import ChosenTag, TagOwner, choose_tags
from berth.images.local_image import digits_of, doubles_problem, is_dirty, push_tag

WORKERS = 4
ShowBlob = Callable[[Descriptor, int], None]
"""Called with a blob that is sent and its bytes that have arrived; it may go back when a blob is sent again."""


@dataclass(frozen=True)
class CopyPlan:
    """What is to be copied: an image, the manifests of what is attached to it, and all their blobs, by digest.

    tags: those that it gets; missing: the blobs that the target lacks; same_registry: it may mount them from the
    source, instead of being sent them.
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
    """A finished promotion: bytes put on the wire, those sent again included, bytes that did not need to go, and the
    tags that the image has got.
    """

    digest: str
    bytes_sent: int
    bytes_there: int
    tags: tuple[str, ...]


def missing_blobs(blobs: Iterable[Descriptor], there: Collection[str]) -> tuple[Descriptor, ...]:
    """Those whose digests are not there; the largest goes first, so that all end at the same time."""
    missing = (blob for blob in blobs if blob.digest not in there)
    return tuple(sorted(missing, key=lambda blob: (-blob.size, blob.digest)))


def plan_copy(source: RepositoryClient, reference: str, target: RepositoryClient, tags: Sequence[str]) -> CopyPlan:
    """What copying the image under a tag or digest would take; the target need not exist yet.

    tags: without any, the image gets the tag of its build, for in ECR what has none expires. UserError where it is no
    image that SageMaker takes, and where nothing may publish it, or not under these tags.
    """
    image = source.registry.manifest(source.name, reference)
    if image is None:
        raise UserError(_absent(source, reference))
    its_labels = verify.check_manifest(source.registry, source.name, image, verify.ANYTHING)
    tags = tuple(tags) or _build_tag(source, image, its_labels)
    refuse(_forbidden(f"{source}@{image.digest}", its_labels, tags))
    owner = TagOwner(its_labels, digits_of(str(image.config_digest)), lambda held: held.digest == image.digest)
    chosen = choose_tags(target, tags, owner)
    if parse_host(target.registry.host) is not None:
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
    """The tag of the image's build, none of an image without the kit's labels; UserError where it may not be its own.

    What somebody built FROM the kit's image has the same labels, and is not that build.
    """
    if not its_labels.get(labels.KIT) or not its_labels.get(labels.PROFILE):
        return ()
    tag = push_tag(its_labels, its_labels[labels.PROFILE], digits_of(str(image.config_digest)))
    held = source.registry.manifest(source.name, tag)
    if held is None or held.digest != image.digest:
        raise UserError(
            f"{source}@{image.digest} has no tag {tag} there, so it may be an image that was built FROM that one: give "
            "TO a tag, such as the one that it has in FROM."
        )
    return (tag,)


def _absent(source: RepositoryClient, reference: str) -> str:
    """That there is no such image, and what there is instead, where the registry lets that be listed."""
    try:
        every = source.registry.tags(source.name)
    except UserError:
        return f"{source} has no image {reference}: look at its tags and digests, or push it there first."
    tags = [tag for tag in every if not lists_referrers(tag)]
    if not tags:
        return f"{source} has no image {reference}, and no tag at all: see that this is the repository's name."
    near = difflib.get_close_matches(reference, tags, n=3, cutoff=0.4) or tags[-3:]
    others = f"{counted(len(tags), 'tag')}, such as {', '.join(near)}"
    return f"{source} has no image {reference}, and {others}: give one of them."


def _forbidden(image: str, found: Mapping[str, str], tags: Sequence[str]) -> list[str]:
    """What its labels forbid, as a push does: a test's double anywhere, and uncommitted changes in a release."""
    problems = doubles_problem(image, found)
    releases = [tag for tag in tags if not is_build_tag(tag)]
    if releases and is_dirty(labels.revision(found)):
        problems.append(
            f"{image} contains uncommitted changes, so it can't be tagged {', '.join(releases)}: commit, build and "
            "push again, and promote that."
        )
    return problems


def tag_lines(target: RepositoryClient, chosen: ChosenTag) -> list[str]:
    """What a promotion would do to a tag of the target."""
    place = f"{target}:{chosen.tag}"
    if chosen.there:
        said = f"{place} is there already, with this image"
    elif chosen.holder is None:
        said = f"{place} will be put"
    else:
        said = f"{place} will move from {chosen.holder.digest[:19]}, if the repository lets a tag move"
    return [*([chosen.line] if chosen.line else []), said]


def copy_image(
    source: RepositoryClient,
    target: RepositoryClient,
    plan: CopyPlan,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: ShowBlob = lambda blob, arrived: None,
) -> Promoted:
    """Copies the image of a plan to another repository, which exists, and puts its tags on it there.

    UserError with what is wrong at any point; what has arrived by then is found and used by the next promotion.
    """
    image, tags = plan.image, tuple(dict.fromkeys(each.tag for each in plan.tags))
    say(f"{target}: {plan.summary()}")
    for each in plan.tags:
        if each.line or each.holder is not None:
            for line in tag_lines(target, each):
                say(line)
    sent = _copy_blobs(source, target, plan, progress)
    # By its digest first: with a tag that is refused the image is there, and the next promotion finds it.
    for name in (image.digest, *tags):
        target.registry.put_manifest(target.name, name, image)
    for name in (image.digest, *tags):
        _verify(target, name, image)
    try:
        for document in plan.documents:
            referrers.put(target.registry, target.name, image.digest, document)
            if parse_host(target.registry.host) is not None and retention.is_release(tags):
                retention.keep(target.registry, target.name, document)
    except UserError as error:
        say(f"{target}: the image is there, and what is attached to it in FROM is not: {error}")
    there = sum(blob.size for blob in plan.blobs.values()) - sum(plan.blobs[digest].size for digest in sent)
    return Promoted(image.digest, sum(sent.values()), there, tags)


def _copy_blobs(
    source: RepositoryClient, target: RepositoryClient, plan: CopyPlan, progress: ShowBlob
) -> dict[str, int]:
    """Has all blobs in the target; gives the bytes put on the wire for each that was sent."""
    sent: dict[str, int] = {}

    def copy(blob: Descriptor, stopped: threading.Event) -> None:
        mounted = plan.same_registry and target.registry.mount_blob(target.name, blob.digest, source.name)
        if not mounted:
            sent[blob.digest] = _send(source, target, blob, progress, stopped)

    run_all(plan.missing, copy, workers=WORKERS)
    return sent


def _send(
    source: RepositoryClient, target: RepositoryClient, blob: Descriptor, progress: ShowBlob, stopped: threading.Event
) -> int:
    def pieces(offset: int) -> Iterator[bytes]:
        for piece in source.registry.read_blob(source.name, blob.digest, offset):
            if stopped.is_set():
                raise UserError(f"the copy of {blob.digest} was stopped: run this again, it goes on from there.")
            yield piece

    return target.registry.upload_blob(
        target.name, blob.digest, blob.size, pieces, lambda arrived: progress(blob, arrived)
    )


def _sizes(target: RepositoryClient, blobs: Sequence[Descriptor]) -> dict[str, int | None]:
    """The bytes that the target has of each blob, by digest; UserError where the manifest has another number."""

    def ask(blob: Descriptor, _: threading.Event) -> int | None:
        size = target.registry.blob_size(target.name, blob.digest)
        if size not in (None, blob.size):
            raise UserError(
                f"{target} has {size} bytes of {blob.digest}, which has {blob.size}: its storage is damaged, have the "
                "blob removed there."
            )
        return size

    return dict(zip((blob.digest for blob in blobs), run_all(blobs, ask, workers=WORKERS), strict=True))


def _verify(target: RepositoryClient, name: str, image: Manifest) -> None:
    held = target.registry.manifest(target.name, name)
    if held is None or held.digest != image.digest:
        raise UserError(
            f"{target} was given {image.digest} as {name}, and has {held.digest if held else 'nothing'} there: another "
            "push may have taken the tag meanwhile, run this again."
        )
