"""Which image of the engine a command is for: the kit's own of a profile, or one that somebody built FROM it.

An image that was built FROM ours inherits its labels: they say which of the two images it stands on, and which profile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from docker import DockerClient
from docker.models.images import Image

from berth.common import labels
from berth.common.engine import find_image
from berth.common.errors import UserError
from berth.common.image_names import image_name, repository_name
from berth.images.pins import pins, pins_file


@dataclass(frozen=True, slots=True)
class SelectedImage:
    """An image of the engine. name: as the engine knows it, such as berth-train:cpu or mytrain:1, or the id that was
    given; kit: train or serve; derived: it is built FROM the kit's image, and not that image; attrs: as the engine
    describes it.
    """

    name: str
    id: str
    kit: str
    profile: str
    derived: bool
    attrs: dict[str, Any] = field(compare=False, repr=False)

    @property
    def labels(self) -> dict[str, str]:
        return self.attrs["Config"].get("Labels") or {}

    @property
    def variables(self) -> dict[str, str]:
        """Its own environment variables, by ENV of its Dockerfile."""
        return dict(word.split("=", 1) for word in self.attrs["Config"].get("Env") or [])

    @property
    def repository(self) -> str:
        """What it is called without host and tag: berth-train, or what its owner calls it; empty of an id."""
        return own_name(self.name)[0] if self.derived else repository_name(self.kit)

    @property
    def tag(self) -> str:
        """Which one it is: the tag of the build, or that which its owner gave it; empty of an id."""
        return own_name(self.name)[1] if self.derived else labels.exact(self.labels, self.profile)


def other_build(name: str, kit: str, profile: str, revision: str, checkout: str) -> str:
    """A sentence if an image of the kit was not built from this checkout, else ""; also "" if either has no revision.

    name: the image's; revision: by its labels; checkout: the revision that is here.
    """
    if labels.NO_REVISION in (revision, checkout) or revision == checkout:
        return ""
    return (
        f"{name} was built from {revision}, and this checkout is at {checkout}: run `python build.py build {kit} "
        f"--profile {profile}` first if you mean what is here."
    )


def own_name(name: str) -> tuple[str, str]:
    """Repository, without a registry's host, and tag of an image's name; both empty where it has no tag, as an id."""
    path, _, tag = name.partition("@")[0].rpartition(":")
    first, slash, rest = path.partition("/")
    is_host = bool(slash) and (first == "localhost" or bool({".", ":"} & set(first)))
    if not path or "/" in tag or path == "sha256":
        return "", ""
    return rest if is_host else path, tag


def is_kit_name(name: str, found: Mapping[str, str]) -> bool:
    """Whether a build, or a push, which may add digits, gives an image with these labels this name, in whatever
    registry; others are its owner's.
    """
    image, profile, short = found.get(labels.KIT, ""), found.get(labels.PROFILE, ""), name.rpartition("/")[2]
    if not profile:  # the base, of which there is one
        return short.startswith(f"{repository_name(image)}:")
    latest, build = (image_name(image, tag) for tag in (profile, labels.exact(found, profile)))
    return short in (latest, build) or short.startswith(f"{build}-")


def find_built_image(client: DockerClient, name: str) -> Image:
    """An image of the engine; where one of the kit's is missing, the UserError says the command that builds it."""
    return find_image(client, name, pins.profile_names())


def require_images(kits: Sequence[str], profile: str, name: str | None = None) -> None:
    """UserError where no image is named and the profile has none of `kits`: what is wrong without asking an engine."""
    if name is None:
        pins_file.load().profile(profile).of(kits)


def select_image(client: DockerClient, kit: str | None, profile: str, name: str | None = None) -> SelectedImage:
    """The image `name`, or without one the image that was built last for `kit` and `profile`.

    kit: train or serve, with a name also None where either will do; profile: of a named image its label says it, and
    another one than that is refused, but for the default, which nobody may have asked for. UserError where there is no
    such image, where it does not stand on one of the kit's, or on the other one.
    """
    if name is None:
        require_images([str(kit)], profile)
        name = image_name(str(kit), profile)
        found = find_built_image(client, name)
        return SelectedImage(name, str(found.id), str(kit), profile, derived=False, attrs=found.attrs)
    found = find_built_image(client, name)
    its_kit, its_profile = found.labels.get(labels.KIT, ""), found.labels.get(labels.PROFILE, "")
    if its_kit not in pins.IMAGES or not its_profile:
        begin = image_name(kit or pins.IMAGES[0], profile)
        raise UserError(
            f"{name} was not built FROM an image of the kit (it has no label {labels.KIT} of one): let its Dockerfile "
            f"begin with `FROM {begin}`, and build it again."
        )
    if kit not in (None, its_kit):
        raise UserError(
            f"{name} was built FROM {repository_name(its_kit)}, and this is for {repository_name(str(kit))}: name "
            "another image."
        )
    if profile not in (pins.DEFAULT_PROFILE, its_profile):
        raise UserError(
            f"{name} was built FROM the profile {its_profile}, and --profile says {profile}: leave --profile out, the "
            "image has its own."
        )
    # The kit's own under another name, as `docker tag` gives it, still has one that the build gave it.
    derived = not any(is_kit_name(tag, found.labels) for tag in found.tags)
    return SelectedImage(_known_as(name, found.tags), str(found.id), its_kit, its_profile, derived, found.attrs)


def select_images(client: DockerClient, kits: Sequence[str], profile: str, name: str | None) -> list[SelectedImage]:
    """What a command for `train`, `serve` or both is for: the one image `name`, or without it those of the kit that the
    profile has.
    """
    if name is None:
        return [select_image(client, kit, profile) for kit in pins_file.load().profile(profile).of(kits)]
    return [select_image(client, kits[0] if len(kits) == 1 else None, profile, name)]


def _known_as(name: str, tags: list[str]) -> str:
    """The whole name of what was given as `mytrain` or as `mytrain:1`; an id stays."""
    return f"{name}:latest" if f"{name}:latest" in tags and name not in tags else name
