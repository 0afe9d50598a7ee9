"""A built image on this machine's engine, with what a push needs: names, labels, layers and id."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.common import labels
from berth.common.engine import image_store
from berth.common.image_names import image_name
from berth.images.selection import SelectedImage

_NO_VERSIONS = ("kit", "profile", "software", "left-out")  # labels of berth that are not versions
_DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_DIRTY = "-dirty"
_DIGITS = 8
UNKNOWN = "unknown"
"""Stands for the media type of a manifest that the engine does not report and that may be OCI."""


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on the engine, known there by its `id`.

    image: train or serve; name: as given to the command, such as berth-train:cpu, mytrain:1 or an id; derived: whether
    a user built it FROM berth's `image`, whose labels it inherits; own_name: the repository and tag that its owner gave
    it, both empty for berth's images and for an id; size: uncompressed bytes of all layers; built: RFC 3339; diff_ids:
    digests of the uncompressed layers, lowest first; stored_as: the media type of its manifest if the engine keeps one
    (containerd's store), empty if it makes one at a push; names: all its names on the engine.
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
        """12 digits of the commit, followed by "-dirty" if it was built from uncommitted changes."""
        return labels.revision(self.labels)

    @property
    def dirty(self) -> bool:
        return is_dirty(self.revision)

    @property
    def digits(self) -> str:
        """The first digits of its id, which distinguish it from other images of its revision."""
        return digits_of(self.id)

    @property
    def push_tag(self) -> str:
        """The tag that it gets in every registry: the tag of its build, or its owner's."""
        return self.own_name[1] if self.derived else push_tag(self.labels, self.profile, self.digits)

    @property
    def title(self) -> str:
        """Its part of a repository's name: train, serve, or the owner's name for it."""
        return self.own_name[0] if self.derived else self.image

    @property
    def build_name(self) -> str:
        """The engine's name for exactly this build; `name` if there is none, as after a plain `docker build`."""
        whole = image_name(self.image, labels.exact(self.labels, self.profile))
        return whole if whole in self.names and not self.derived else self.name

    @property
    def doubles(self) -> tuple[str, ...]:
        """The parts that are test doubles; an image with any may not be published."""
        return tuple(labels.doubles(self.labels))

    @property
    def pins(self) -> dict[str, str]:
        """The versions inside, by part, from its labels."""
        prefix = "berth."
        known = {name.removeprefix(prefix): text for name, text in self.labels.items() if name.startswith(prefix)}
        return {name: text for name, text in sorted(known.items()) if name not in _NO_VERSIONS}

    @property
    def id_is_config(self) -> bool:
        """Whether the id is the digest of the image's config, as in the engine's own store but not containerd's."""
        return not self.stored_as

    @property
    def pushes_docker_manifest(self) -> bool:
        """Whether a push makes a Docker v2 manifest, the only kind that SageMaker accepts."""
        return self.stored_as in ("", _DOCKER_MANIFEST)


def push_tag(found: Mapping[str, str], profile: str, digits: str) -> str:
    """The tag of a build in a registry. It ends in the image's `digits` if one revision may have several images: with
    uncommitted changes, or if the commit is unknown.
    """
    tag = labels.exact(found, profile)
    has_commit = labels.revision(found) != labels.NO_REVISION and not is_dirty(labels.revision(found))
    return tag if has_commit else f"{tag}-{digits}"


def digits_of(digest: str) -> str:
    """The first digits of a digest."""
    return digest.partition(":")[2][:_DIGITS]


def doubles_problem(name: str, found: Mapping[str, str]) -> list[str]:
    """Why the image `name` with these labels may not be published: one sentence that names the test doubles in it."""
    if not (held := labels.doubles(found)):
        return []
    return [
        f"{name} holds a test's double of {', '.join(held)}: it is for tests, and may not be published; build it "
        "without doubles."
    ]


def is_dirty(revision: str) -> bool:
    """Whether a revision has uncommitted changes."""
    return revision.endswith(_DIRTY)


def local_image_from(selected: SelectedImage, info: Mapping[str, Any] | None = None) -> LocalImage:
    """The image that was selected for a command, berth's or a derived one.

    info: of the engine. With it, `stored_as` is UNKNOWN if the engine may push an OCI manifest but does not report its
    media type, as containerd's store before API 1.48 (Docker 28) and podman.
    """
    attrs, known = selected.attrs, info or {}
    stored_as = (attrs.get("Descriptor") or {}).get("mediaType", "")
    if not stored_as and (image_store(known) == "containerd" or "BuildahVersion" in known):
        stored_as = UNKNOWN
    return LocalImage(
        selected.image,
        selected.profile,
        selected.name,
        str(attrs["Id"]),
        selected.labels,
        int(attrs["Size"]),
        str(attrs.get("Created", "")),
        tuple(attrs["RootFS"].get("Layers") or ()),
        stored_as,
        selected.derived,
        (selected.repository, selected.tag) if selected.derived else ("", ""),
        tuple(attrs.get("RepoTags") or ()),
    )
