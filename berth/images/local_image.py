"""An image on this machine's engine: berth's, or one that a user built FROM it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.common import labels
from berth.common.engine import image_store
from berth.common.image_names import image_name, repository_name

_NO_VERSIONS = ("kit", "profile", "software", "left-out")  # labels of berth that are not versions
_DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_DIRTY = "-dirty"
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image on the engine, known there by its `id`.

    name: such as berth-train:cpu or mytrain:1, or the id that was given; image: train or serve; derived: whether a user
    built it FROM berth's `image`, whose labels it inherits; attrs: the result of `docker image inspect`; info: of the
    engine, if the image is pushed.
    """

    name: str
    id: str
    image: str
    profile: str
    derived: bool
    attrs: Mapping[str, Any] = field(compare=False, repr=False)
    info: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def labels(self) -> dict[str, str]:
        return self.attrs["Config"].get("Labels") or {}

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its config, which ENV lines of Dockerfiles set."""
        return dict(word.split("=", 1) for word in self.attrs["Config"].get("Env") or [])

    @property
    def size(self) -> int:
        """Uncompressed bytes of all layers."""
        return int(self.attrs["Size"])

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """The digests of the uncompressed layers, lowest first."""
        return tuple(self.attrs["RootFS"].get("Layers") or ())

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
        """The tag that it gets in every registry: the tag of its build, or its owner's, which is empty for an id."""
        return own_name(self.name)[1] if self.derived else push_tag(self.labels, self.profile, self.digits)

    @property
    def title(self) -> str:
        """Its part of a repository's name: train, serve, or the owner's name for it, which is empty for an id."""
        return own_name(self.name)[0] if self.derived else self.image

    @property
    def repository(self) -> str:
        """The name without host and tag: berth-train, or the owner's name."""
        return self.title if self.derived else repository_name(self.image)

    @property
    def build_name(self) -> str:
        """The engine's name for exactly this build; `name` if there is none, as after a plain `docker build`."""
        whole = image_name(self.image, labels.exact(self.labels, self.profile))
        return whole if whole in (self.attrs.get("RepoTags") or ()) and not self.derived else self.name

    @property
    def pins(self) -> dict[str, str]:
        """The versions inside, by part, from its labels."""
        prefix = "berth."
        known = {name.removeprefix(prefix): text for name, text in self.labels.items() if name.startswith(prefix)}
        return {name: text for name, text in sorted(known.items()) if name not in _NO_VERSIONS}

    @property
    def id_is_config(self) -> bool:
        """Whether the id is the digest of the image's config. In containerd's store it is the digest of a manifest;
        before API 1.48 (Docker 28), and in podman's, that manifest is not described.
        """
        return not (self._manifest_type or image_store(self.info) == "containerd" or "BuildahVersion" in self.info)

    @property
    def pushes_docker_manifest(self) -> bool:
        """Whether a push makes a Docker v2 manifest, the only kind that SageMaker accepts."""
        return self.id_is_config or self._manifest_type == _DOCKER_MANIFEST

    @property
    def _manifest_type(self) -> str:
        """The media type of its manifest, if the engine keeps one and describes it."""
        return str((self.attrs.get("Descriptor") or {}).get("mediaType", ""))


def own_name(name: str) -> tuple[str, str]:
    """Repository, without a registry's host, and tag of an image's name; both empty if it has no tag or is an id."""
    path, _, tag = name.partition("@")[0].rpartition(":")
    first, slash, rest = path.partition("/")
    is_host = bool(slash) and (first == "localhost" or bool({".", ":"} & set(first)))
    if not path or "/" in tag or path == "sha256":
        return "", ""
    return rest if is_host else path, tag


def other_build(image: LocalImage, checkout: str) -> str:
    """A warning if an image of berth was not built from this checkout, else ""; also "" if a revision is unknown.

    checkout: the revision of this checkout.
    """
    if image.derived or labels.NO_REVISION in (image.revision, checkout) or image.revision == checkout:
        return ""
    return (
        f"{image.build_name} was built from {image.revision}, and this checkout is at {checkout}: to use this "
        f"checkout, run `python build.py build {image.image} --profile {image.profile}` first."
    )


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


def doubles_problem(name: str, image_labels: Mapping[str, str]) -> list[str]:
    """Why the image `name` with these labels may not be published: one sentence that names the test doubles in it."""
    if not (doubles := labels.doubles(image_labels)):
        return []
    return [
        f"{name} holds a test's double of {', '.join(doubles)}: it is for tests, and may not be published; build it "
        "without doubles."
    ]


def is_dirty(revision: str) -> bool:
    """Whether a revision has uncommitted changes."""
    return revision.endswith(_DIRTY)
