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
from berth.images import dockerfiles, pins
from berth.images.lock_check import lock_problem


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
    """The checkout that is built: its folder, the kit's version and revision, and, by image, what its Dockerfile's
    arguments are where none is passed (`dockerfiles.rendered_arguments`), which is not what pins.toml says between an
    edit of it and `build.py pins`.
    """

    root: Path
    version: str
    revision: Revision
    rendered: Mapping[str, Mapping[str, str]]


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
    """The labels that the Dockerfile can't know; its own say the profile and the versions inside."""
    found = {
        f"{labels.SOURCE}.version": checkout.version,
        f"{labels.SOURCE}.revision": str(checkout.revision),
        f"{labels.SOURCE}.base.name": base.reference,
        f"{labels.SOURCE}.base.digest": base.digest,
        f"{labels.SOURCE}.licenses": "Apache-2.0",
    }
    if checkout.revision.created:
        found[f"{labels.SOURCE}.created"] = checkout.revision.created
    if left_out := [f"{part}={why}" for part, why in profile.left_out.items() if part in pins.FILE_PARTS[image]]:
        found[labels.LEFT_OUT] = ",".join(left_out)
    return found


def step_count(image: str, root: Path) -> int:
    """How many steps BuildKit shows of an image's Dockerfile: its base, and each instruction that makes a layer."""
    text = (root / "docker" / f"{image}.Dockerfile").read_text()
    return 1 + len(re.findall(r"^(RUN|COPY|WORKDIR)\b", text, flags=re.MULTILINE))


def refusals(kit: pins.Pins, profile: pins.Profile, image: str, locks: Path) -> list[str]:
    """Why this image of this profile can't be built, one sentence each; empty where it can."""
    reasons = []
    for part, file in profile.files.items():
        if part not in pins.FILE_PARTS[image]:
            continue
        if file.torch and file.torch != profile.torch:
            reasons.append(
                f"{part} {file.version} is built for torch {file.torch}, and profile {profile.name} has torch "
                f"{profile.torch}: change one of the two in docker/pins.toml, or build with --without {part}."
            )
    problem = lock_problem(kit, profile, image, locks)
    return [*reasons, *([problem] if problem else [])]


def build_plan(kit: pins.Pins, profile: pins.Profile, image: str, checkout: Checkout, provided: Provided) -> BuildPlan:
    """The build of one image."""
    if image not in pins.IMAGES:
        raise UserError(f"there is no image {image!r}: name {' or '.join(pins.IMAGES)}.")
    arguments = {**dockerfiles.build_arguments(kit, profile, image), "BASE_IMAGE": provided.base.reference}
    root, rendered = checkout.root, checkout.rendered[image]
    options = ["--platform", "linux/amd64", "--file", str(root / "docker" / f"{image}.Dockerfile")]
    for name, value in arguments.items():
        if value != rendered.get(name):
            options += ["--build-arg", f"{name}={value}"]
    for name in provided.proxies:
        options += ["--build-arg", name]
    for name, path in sorted(provided.secrets.items()):
        options += ["--secret", f"id={name},src={path}"]
    for name, value in image_labels(profile, image, checkout, provided.base).items():
        options += ["--label", f"{name}={value}"]
    names = tags(image, profile.name, checkout.version, checkout.revision)
    return BuildPlan(image, profile.name, tuple(options), names, root)
