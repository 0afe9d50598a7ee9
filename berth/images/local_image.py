"""A built image on this machine's engine, as far as a registry is concerned: its names, labels, layers and id."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from berth.common import labels
from berth.common.engine import image_store
from berth.common.image_names import image_name
from berth.images.selection import SelectedImage

_NO_VERSIONS = ("kit", "profile", "software", "left-out")  # labels of ours that name something else
_DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_DIRTY = "-dirty"
_DIGITS = 8
UNKNOWN = "unknown"
"""The media type of a manifest that the engine does not name, and that may be OCI's."""


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on the engine, known there by its `id`.

    name: as the command was given it, such as berth-train:cpu, mytrain:1 or an id; derived: somebody built it FROM the
    kit's `image`, and it is another image than that, though it has its labels; own_name: the repository and the tag
    that its owner gave it, both empty for the kit's own, and for an id; size: bytes of all layers, plain; built: RFC
    3339; diff_ids: digests of the plain layers, lowest first; stored_as: the media type of its manifest if the engine
    keeps one (containerd's store), empty if it makes one at a push; names: all that the engine has for it.
    """

    image: str
    profile: str
    name: str
    id: str
    labels: Mapping[str, str] = field(hash=False)
    size: int
    built: str
    diff_ids: tuple[str, ...]
    stored_as: str = ""
    derived: bool = False
    own_name: tuple[str, str] = ("", "")
    names: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return labels.version(self.labels)

    @property
    def revision(self) -> str:
        """12 digits of the commit, with "-dirty" behind where uncommitted changes are in it."""
        return labels.revision(self.labels)

    @property
    def dirty(self) -> bool:
        return is_dirty(self.revision)

    @property
    def digits(self) -> str:
        """The first digits of its id, which tell it from other images of its revision."""
        return digits_of(self.id)

    @property
    def push_tag(self) -> str:
        """The tag that it has in every registry: that of its build, or the one that its owner gave it."""
        return self.own_name[1] if self.derived else push_tag(self.labels, self.profile, self.digits)

    @property
    def title(self) -> str:
        """What stands for it in a repository's name: train, serve, or what its owner calls it."""
        return self.own_name[0] if self.derived else self.image

    @property
    def build_name(self) -> str:
        """The engine's name that stays with this build; `name` if it has none, as after a plain `docker build`."""
        whole = image_name(self.image, labels.exact(self.labels, self.profile))
        return whole if whole in self.names and not self.derived else self.name

    @property
    def doubles(self) -> tuple[str, ...]:
        """The parts of it that a test's double stands in for: with any, nothing may publish it."""
        return tuple(labels.doubles(self.labels))

    @property
    def pins(self) -> dict[str, str]:
        """The versions inside, by part, as its labels name them."""
        prefix = "berth."
        known = {name.removeprefix(prefix): text for name, text in self.labels.items() if name.startswith(prefix)}
        return {name: text for name, text in sorted(known.items()) if name not in _NO_VERSIONS}

    @property
    def id_is_config(self) -> bool:
        """Whether the id is the digest of the image's config: in the engine's own store, not in containerd's."""
        return not self.stored_as

    @property
    def pushes_docker_manifest(self) -> bool:
        """Whether a push of it gives the one kind of manifest that SageMaker takes."""
        return self.stored_as in ("", _DOCKER_MANIFEST)


def push_tag(found: Mapping[str, str], profile: str, digits: str) -> str:
    """The tag of a build in a registry; digits: the image's, which tell apart all images that a revision may have had.

    Uncommitted changes are never twice the same, and without a revision nothing tells which commit it was.
    """
    tag = labels.exact(found, profile)
    is_of_a_commit = labels.revision(found) != labels.NO_REVISION and not is_dirty(labels.revision(found))
    return tag if is_of_a_commit else f"{tag}-{digits}"


def digits_of(digest: str) -> str:
    """The first digits of a digest."""
    return digest.partition(":")[2][:_DIGITS]


def doubles_problem(name: str, found: Mapping[str, str]) -> list[str]:
    """Why nothing may publish the image `name` with these labels: the tests' doubles in it, in one sentence."""
    if not (held := labels.doubles(found)):
        return []
    return [
        f"{name} holds a test's double of {', '.join(held)}: it is for tests, and may not be published; build it "
        "without doubles."
    ]


def is_dirty(revision: str) -> bool:
    """Whether a revision has uncommitted changes."""
    return revision.endswith(_DIRTY)


def of_chosen(chosen: SelectedImage) -> LocalImage:
    """The image that a command is for, which may be somebody's own, built FROM one of the kit's."""
    found = described(chosen.kit, chosen.profile, chosen.name, chosen.attrs)
    return replace(found, derived=True, own_name=(chosen.repository, chosen.tag)) if chosen.derived else found


def described(image: str, profile: str, name: str, attrs: Mapping[str, Any]) -> LocalImage:
    """An image from what `docker image inspect` says of it."""
    return LocalImage(
        image,
        profile,
        name,
        str(attrs["Id"]),
        attrs["Config"].get("Labels") or {},
        int(attrs["Size"]),
        str(attrs.get("Created", "")),
        tuple(attrs["RootFS"].get("Layers") or ()),
        (attrs.get("Descriptor") or {}).get("mediaType", ""),
        names=tuple(attrs.get("RepoTags") or ()),
    )


def with_store(image: LocalImage, info: Mapping[str, Any]) -> LocalImage:
    """The image, with `stored_as` UNKNOWN if the engine may push an OCI manifest of it and does not say so.

    info: of the engine. Such are containerd's store before API 1.48 (Docker 28), and podman.
    """
    containerd = image_store(info) == "containerd"
    is_podman = "BuildahVersion" in info
    return replace(image, stored_as=UNKNOWN) if not image.stored_as and (containerd or is_podman) else image
