"""What a build will do, decided before anything runs: tags, labels and the exact command line. Pure.

`build_plan` gives a `BuildPlan`; `BuildPlan.argv` is what runs, and what `--dry-run` prints.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.common import labels
from berth.common.engine import BUILDKIT
from berth.common.errors import UserError
from berth.common.image_names import build_tag, image_name
from berth.images.pins import pins
from berth.images.pins.layer_files import versions
from berth.images.locks.lock_check import lock_problem
from berth.images.pins.parts import file_problems


@dataclass(frozen=True)
class Revision:
    """The checkout that is built: 12 digits of the commit, or "none" outside git; dirty with uncommitted changes."""

    commit: str
    dirty: bool = False
    created: str = ""

    def __str__(self) -> str:
        return f"{self.commit}-dirty" if self.dirty else self.commit


@dataclass(frozen=True)
class Base:
    """The image that a build starts from, and the digest or image id that says which one it was."""

    reference: str
    digest: str


@dataclass(frozen=True)
class Checkout:
    """The checkout that is built: its folder, the kit's version and revision."""

    root: Path
    version: str
    revision: Revision


@dataclass(frozen=True)
class Provided:
    """What lies ready for a build: its base, its secrets as files by id, and the names of the variables of this
    machine's proxies, whose values stay out of it.
    """

    base: Base
    secrets: Mapping[str, Path]
    proxies: Sequence[str] = ()


@dataclass(frozen=True)
class BuildPlan:
    """One build: the options of `docker build`, its tags, the exact one first, then the moving one, and its context."""

    image: str
    profile: str
    options: tuple[str, ...]
    tags: tuple[str, ...]
    root: Path

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command, without its client."""
        tags = (word for tag in self.tags for word in ("--tag", tag))
        return ("build", *self.options, *tags, str(self.root))

    def command(self, client: str = "docker") -> str:
        """The line that a person can paste into a shell."""
        settings = " ".join(f"{name}={value}" for name, value in BUILDKIT.items())
        return f"{settings} {shlex.join([client, *self.argv])}"


def tags(image: str, profile: str, version: str, revision: Revision) -> tuple[str, str]:
    """`berth-train:0.1.0-cpu-1a2b3c4d5e6f`, which stays, and `berth-train:cpu`, which moves."""
    return image_name(image, build_tag(version, profile, str(revision))), image_name(image, profile)


def image_labels(profile: pins.Profile, image: str, checkout: Checkout, base: Base) -> dict[str, str]:
    """The labels that the Dockerfile can't know; its own say kind, profile and the parts left out."""
    found = {
        **{f"berth.{name}": text for name, text in versions(profile, image).items()},
        labels.SOFTWARE: profile.software.name,
        f"{labels.SOURCE}.version": checkout.version,
        f"{labels.SOURCE}.revision": str(checkout.revision),
        f"{labels.SOURCE}.base.name": base.reference,
        f"{labels.SOURCE}.base.digest": base.digest,
    }
    if checkout.revision.created:
        found[f"{labels.SOURCE}.created"] = checkout.revision.created
    return found


def step_count(image: str, root: Path) -> int:
    """How many steps BuildKit shows of an image's build: the base, and each instruction of its stages that makes a
    layer.
    """
    stages = re.split(r"^FROM .* AS ", (root / "docker" / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    by_name = {stage.split(maxsplit=1)[0]: stage for stage in stages}
    other = next(each for each in pins.IMAGES if each != image)
    counted = [text for name, text in by_name.items() if not name.endswith(other)]
    return 1 + len(re.findall(r"^(RUN|COPY|WORKDIR)\b", "".join(counted), flags=re.MULTILINE))


def refusals(kit: pins.Pins, profile: pins.Profile, image: str, locks: Path) -> list[str]:
    """Why this image of this profile can't be built, one sentence each; empty where it can."""
    problem = lock_problem(kit, profile, image, locks)
    return [*file_problems(profile, [image]), *([problem] if problem else [])]


def build_plan(kit: pins.Pins, profile: pins.Profile, image: str, checkout: Checkout, provided: Provided) -> BuildPlan:
    """The build of one image."""
    if image not in pins.IMAGES:
        raise UserError(f"there is no image {image!r}: name {' or '.join(pins.IMAGES)}.")
    root = checkout.root
    options = ["--platform", "linux/amd64", "--file", str(root / "docker" / "Dockerfile"), "--target", image]
    options += ["--build-arg", f"PROFILE={profile.name}"]
    if left_out := [part for part in profile.left_out if part in pins.FILE_PARTS[image]]:
        options += ["--build-arg", f"WITHOUT={','.join(left_out)}"]
    if provided.base.reference != kit.base_image:
        options += ["--build-arg", f"BASE_IMAGE={provided.base.reference}"]
    for name in provided.proxies:
        options += ["--build-arg", name]
    for name, path in sorted(provided.secrets.items()):
        options += ["--secret", f"id={name},src={path}"]
    for name, value in image_labels(profile, image, checkout, provided.base).items():
        options += ["--label", f"{name}={value}"]
    names = tags(image, profile.name, checkout.version, checkout.revision)
    return BuildPlan(image, profile.name, tuple(options), names, root)
