"""A built image on this machine's engine, as far as a registry is concerned: its names, labels, layers and id."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from berth.common import labels
from berth.common.image_names import image_name
from berth.images.selection import SelectedImage

_NO_VERSIONS = ("kit", "profile", "software", "left-out")  # labels of ours that name something else
_DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_DIRTY = "-dirty"


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on the engine, known there by its `id`. `tag` moves with each build, `exact_tag` stays.

    derived: somebody built it FROM the kit's `image`, and it is another image than that, though it has its labels;
    own_name: the repository and the tag that its owner gave it, both empty for the kit's own, and for an id; size:
    bytes of all layers, plain; built: RFC 3339; diff_ids: digests of the plain layers, lowest first; stored_as: the
    media type of its manifest where the engine keeps one (containerd's store), empty where it makes one at a push.
    """

    image: str
    profile: str
    tag: str
    id: str
    labels: Mapping[str, str] = field(hash=False)
    size: int
    built: str
    diff_ids: tuple[str, ...]
    stored_as: str = ""
    derived: bool = False
    own_name: tuple[str, str] = ("", "")

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
    def exact(self) -> str:
        """The tag that says which build it is, such as 0.1.0-cpu-1a2b3c4d5e6f, or the tag that its owner gave it."""
        return self.own_name[1] if self.derived else labels.exact(self.labels, self.profile)

    @property
    def title(self) -> str:
        """What stands for it in a repository's name: train, serve, or what its owner calls it."""
        return self.own_name[0] if self.derived else self.image

    @property
    def exact_tag(self) -> str:
        """The whole name of it on the engine."""
        return self.tag if self.derived else image_name(self.image, self.exact)

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


def exact_tag(found: Mapping[str, str]) -> str:
    """The tag that says which build an image is, by its labels alone; empty where it is none of the kit's."""
    wanted = (f"{labels.SOURCE}.version", labels.PROFILE, f"{labels.SOURCE}.revision")
    return labels.exact(found, found[labels.PROFILE]) if all(found.get(name) for name in wanted) else ""


def doubles_problem(name: str, found: Mapping[str, str]) -> list[str]:
    """Why nothing may publish the image `name` with these labels: the tests' doubles in it, in one sentence."""
    if not (held := labels.doubles(found)):
        return []
    return [
        f"{name} holds a test's double of {', '.join(held)}: it is for tests, and may not be published; build it "
        "without doubles."
    ]


def is_dirty(revision: str) -> bool:
    """Whether a revision is not that of a commit alone."""
    return revision.endswith(_DIRTY) or revision == "none"


def of_chosen(chosen: SelectedImage) -> LocalImage:
    """The image that a command is for, which may be somebody's own, built FROM one of the kit's."""
    found = described(chosen.kit, chosen.profile, chosen.name, chosen.attrs)
    return replace(found, derived=True, own_name=(chosen.repository, chosen.tag)) if chosen.derived else found


def described(image: str, profile: str, tag: str, attrs: Mapping[str, Any]) -> LocalImage:
    """An image from what `docker image inspect` says of it."""
    return LocalImage(
        image,
        profile,
        tag,
        str(attrs["Id"]),
        attrs["Config"].get("Labels") or {},
        int(attrs["Size"]),
        str(attrs.get("Created", "")),
        tuple(attrs["RootFS"].get("Layers") or ()),
        (attrs.get("Descriptor") or {}).get("mediaType", ""),
    )
