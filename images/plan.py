"""What a build will do, decided before anything runs: tags, labels and the exact command line. Pure.

`build_plan` gives a `BuildPlan`; `BuildPlan.argv` is what runs, and what `--dry-run` prints.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.common import labels
from berth.common.errors import UserError
from berth.images import dockerfiles, pins

# BuildKit is off by default up to Docker 22. A newer client's buildx adds an attestation, which makes an OCI index of
# the image, and SageMaker refuses that; an older client has no option to leave it out, but each takes the variable.
BUILDKIT = {"DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


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
    return f"berth-{image}:{version}-{profile}-{revision}", f"berth-{image}:{profile}"


def image_labels(profile: pins.Profile, version: str, revision: Revision, base: Base) -> dict[str, str]:
    """The labels that the Dockerfile can't know; its own say the profile and the versions inside."""
    found = {
        f"{labels.SOURCE}.version": version,
        f"{labels.SOURCE}.revision": str(revision),
        f"{labels.SOURCE}.base.name": base.reference,
        f"{labels.SOURCE}.base.digest": base.digest,
        f"{labels.SOURCE}.licenses": "Apache-2.0",
    }
    if revision.created:
        found[f"{labels.SOURCE}.created"] = revision.created
    return found


def step_count(image: str, root: Path) -> int:
    """How many steps BuildKit shows of an image's Dockerfile: its base, and each instruction that makes a layer."""
    text = (root / "docker" / f"{image}.Dockerfile").read_text()
    return 1 + len(re.findall(r"^(RUN|COPY|WORKDIR)\b", text, flags=re.MULTILINE))


def refusals(profile: pins.Profile, image: str, locks: Path) -> list[str]:
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
        elif file.sha256 == pins.UNPINNED:
            reasons.append(
                f"{part} {file.version} of profile {profile.name} has no sha256 in docker/pins.toml: run `python "
                f"build.py pins --fetch {file.key}`, which downloads it and records its hash, or build with --without "
                f"{part}."
            )
    if not (locks / profile.name / "pytorch.txt").exists():
        reasons.append(
            f"profile {profile.name} has no locks in docker/locks: run `python build.py pins --profile "
            f"{profile.name}`, which makes them."
        )
    return reasons


def left_out(profile: pins.Profile, image: str) -> list[str]:
    """What an image for GPUs goes without, and what that means, a line each; nothing of it concerns one for CPUs."""
    means = {
        "efa": "NCCL over TCP between hosts",
        "smddp": "smddp requests run on NCCL",
        "gdrcopy": "CUDA copies small messages"
        + (", and SMDDP, which asks for it, may not load" if "smddp" in profile.files else ""),
        "cuda-compat": "the host's driver is used as it is",
    }
    parts = pins.FILE_PARTS[image] if profile.cuda else ()
    return [f"{part}: left out, {means[part]}" for part in parts if part not in profile.files]


def build_plan(
    kit: pins.Pins,
    profile: pins.Profile,
    image: str,
    *,
    version: str,
    revision: Revision,
    base: Base,
    secrets: Mapping[str, Path],
    proxies: Sequence[str] = (),
    rendered: Mapping[str, str],
    root: Path,
) -> BuildPlan:
    """The build of one image; `secrets` are files by id, `proxies` names of variables, whose values stay out of it.

    rendered: what the Dockerfile's arguments are where none is passed (`dockerfiles.rendered_arguments`), which is not
    what pins.toml says between an edit of it and `build.py pins`.
    """
    if image not in pins.IMAGES:
        raise UserError(f"there is no image {image!r}: name {' or '.join(pins.IMAGES)}.")
    arguments = {**dockerfiles.build_arguments(kit, profile, image), "BASE_IMAGE": base.reference}

    options = ["--platform", "linux/amd64", "--file", str(root / "docker" / f"{image}.Dockerfile")]
    for name, value in arguments.items():
        if value != rendered.get(name):
            options += ["--build-arg", f"{name}={value}"]
    for name in proxies:
        options += ["--build-arg", name]
    for name, path in sorted(secrets.items()):
        options += ["--secret", f"id={name},src={path}"]
    for name, value in image_labels(profile, version, revision, base).items():
        options += ["--label", f"{name}={value}"]
    return BuildPlan(image, profile.name, tuple(options), tags(image, profile.name, version, revision), root)
