"""Plans a build before anything runs: tags, labels and the exact command line. Pure.

`build_plan` returns a `BuildPlan`; `BuildPlan.argv` is what runs, and what `--dry-run` prints.
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
from berth.images.locks.lock_check import lock_problem
from berth.images.pins import pins
from berth.images.pins.layer_files import versions
from berth.images.pins.parts import file_problems


@dataclass(frozen=True)
class Revision:
    """The revision that is built: 12 digits of the commit, or "none" if unknown; dirty: with uncommitted changes."""

    commit: str
    dirty: bool = False
    created: str = ""

    def __str__(self) -> str:
        return f"{self.commit}-dirty" if self.dirty else self.commit


@dataclass(frozen=True)
class Base:
    """The image that a build starts from, and its digest or image id."""

    reference: str
    digest: str


@dataclass(frozen=True)
class Provided:
    """The prepared inputs of a build: its base, its secrets as files by id, and the names of this machine's proxy
    variables, whose values stay out of the plan.
    """

    base: Base
    secrets: Mapping[str, Path]
    proxies: Sequence[str] = ()


@dataclass(frozen=True)
class BuildPlan:
    """One build: the options of `docker build`, its tags (first of this build, then of the profile) and context."""

    image: str
    profile: str
    options: tuple[str, ...]
    tags: tuple[str, ...]
    root: Path

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command, without the client program."""
        tags = (word for tag in self.tags for word in ("--tag", tag))
        return ("build", *self.options, *tags, str(self.root))

    def command(self, client: str = "docker") -> str:
        """The command as a line for a shell."""
        settings = " ".join(f"{name}={value}" for name, value in BUILDKIT.items())
        return f"{settings} {shlex.join([client, *self.argv])}"


def tags(image: str, profile: str, revision: Revision) -> tuple[str, str]:
    """`berth-train:build-0.1.0-cpu-1a2b3c4d5e6f`, which stays, and `berth-train:cpu`, which moves."""
    return image_name(image, build_tag(pins.version(), profile, str(revision))), image_name(image, profile)


def image_labels(profile: pins.Profile, image: str, revision: Revision, base: Base) -> dict[str, str]:
    """The labels that the command line sets. The Dockerfile sets those for kind, profile and omitted parts."""
    all_labels = {
        **{f"berth.{name}": text for name, text in versions(profile, image).items()},
        labels.SOFTWARE: profile.software.name,
        f"{labels.SOURCE}.version": pins.version(),
        f"{labels.SOURCE}.revision": str(revision),
        f"{labels.SOURCE}.base.name": base.reference,
        f"{labels.SOURCE}.base.digest": base.digest,
    }
    if revision.created:
        all_labels[f"{labels.SOURCE}.created"] = revision.created
    return all_labels


def step_count(image: str, root: Path) -> int:
    """The number of steps that BuildKit shows for an image: the base, and each instruction of its stages that makes a
    layer.
    """
    stages = re.split(r"^FROM .* AS ", (root / "docker" / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    by_name = {stage.split(maxsplit=1)[0]: stage for stage in stages}
    other = next(each for each in pins.IMAGES if each != image)
    counted = [text for name, text in by_name.items() if not name.endswith(other)]
    return 1 + len(re.findall(r"^(RUN|COPY|WORKDIR)\b", "".join(counted), flags=re.MULTILINE))


def refusals(all_pins: pins.Pins, profile: pins.Profile, image: str, locks: Path) -> list[str]:
    """Why this image of this profile can't be built, a sentence each; empty if it can."""
    problem = lock_problem(all_pins, profile, image, locks)
    return [*file_problems(profile, [image]), *([problem] if problem else [])]


def build_plan(
    all_pins: pins.Pins,
    profile: pins.Profile,
    image: str,
    revision: Revision,
    provided: Provided,
    root: Path,
) -> BuildPlan:
    """The build of one image from the checkout in `root`."""
    if image not in pins.IMAGES:
        raise UserError(f"unknown image {image!r}: name {' or '.join(pins.IMAGES)}.")
    options = ["--platform", "linux/amd64", "--file", str(root / "docker" / "Dockerfile"), "--target", image]
    options += ["--build-arg", f"PROFILE={profile.name}"]
    if left_out := [part for part in profile.left_out if part in pins.FILE_PARTS[image]]:
        options += ["--build-arg", f"WITHOUT={','.join(left_out)}"]
    if provided.base.reference != all_pins.base_image:
        options += ["--build-arg", f"BASE_IMAGE={provided.base.reference}"]
    for name in provided.proxies:
        options += ["--build-arg", name]
    for name, path in sorted(provided.secrets.items()):
        options += ["--secret", f"id={name},src={path}"]
    for name, value in image_labels(profile, image, revision, provided.base).items():
        options += ["--label", f"{name}={value}"]
    names = tags(image, profile.name, revision)
    return BuildPlan(image, profile.name, tuple(options), names, root)
