"""What the package index adds to what is known of releases (`combinations.Known`): rows of projects that the table of
docker/compatibility.json lacks, and of newer versions. `row_of`, `bounds_of` and `cuda_parts` are pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from berth.common.errors import UserError
from berth.images.combinations import Combination, Known, ReleaseRow, newest_that_fits
from berth.images.index_metadata import Index, Metadata, Release

PYTHONS = tuple(f"3.{minor}" for minor in range(7, 15))
_EXTRAS = ("", "torch", "accelerate")
"""Whose requirements count: transformers has its bounds on torch and accelerate in extras."""
_ENVIRONMENT = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "sys_platform": "linux",
}
_MOST_ASKED = 40
"""Releases of a project that are looked into for the newest that fits."""


def ask(index: Index, known: Known, versions: Mapping[str, str]) -> Known:
    """What is known, and all releases of these projects with what those versions ask for (empty: of none, only which
    there are); UserError where the index fails.
    """
    releases = {name: dict(rows) for name, rows in known.releases.items()}
    for project, version in versions.items():
        name, public = canonicalize_name(project), _parsed(version.partition("+")[0])
        rows = releases.setdefault(name, {})
        for release in index.releases(name):
            old = rows.get(str(release.version))
            # What the table has of it stays: the index says the same.
            row = old if old and old.bounds is not None else row_of(release)
            if release.version == public and row.bounds is None and any(file.is_wheel for file in release.files):
                row = row_of(release, index.metadata(release), triton(index, release, index.metadata(release)))
            rows[str(release.version)] = row
    complete = known.complete | {canonicalize_name(project) for project in versions}
    return replace(known, releases=releases, complete=complete)


def ask_newest(index: Index, known: Known, project: str, wanted: Combination) -> tuple[str, Known]:
    """The newest release of a project that goes with the rest, and what is known then; UserError where none does."""
    name = canonicalize_name(project)
    known = ask(index, known, {name: ""})
    for _ in range(_MOST_ASKED):
        version = newest_that_fits(name, wanted, known)
        if not version:
            break
        asked = ask(index, known, {name: version})
        if asked.row(name, version).bounds is None or known.row(name, version).bounds is not None:
            return version, asked
        known = asked
    rest = ", ".join(f"{each} {version}" for each, version in wanted.versions.items())
    until = f" and was uploaded by {wanted.day}" if wanted.day else ""
    raise UserError(
        f"No release of {project} that goes with {rest}{until} was found on {index.name}: name its version"
        f"{', or give a later --day' if wanted.day else ''}."
    )


def row_of(release: Release, metadata: Metadata | None = None, triton_versions: Sequence[str] = ()) -> ReleaseRow:
    """A release as a row; without its metadata its bounds are not known."""
    wheels = any(file.is_wheel for file in release.files)
    requirements = [] if metadata is None else _requirements(metadata)
    return ReleaseRow(
        day=release.day,
        requires_python=release.requires_python or (metadata.requires_python if metadata else ""),
        pythons=tuple(python for python in PYTHONS if release.has_wheel(python)) if wheels else None,
        bounds=None if metadata is None else bounds_of(metadata),
        cuda=cuda_parts(requirements, triton_versions) if release.project == "torch" else {},
        yanked=release.yanked,
    )


def bounds_of(metadata: Metadata, python: str = "3.11") -> dict[str, str]:
    """What a release asks for, by name, on the images' platform; of a project that it asks for twice, both together."""
    found: dict[str, SpecifierSet] = {}
    for requirement in _requirements(metadata, python):
        name = canonicalize_name(requirement.name)
        found[name] = found.get(name, SpecifierSet()) & requirement.specifier
    return {name: ",".join(sorted(set(map(str, found[name])))) for name in sorted(found)}


def cuda_parts(requirements: Iterable[Requirement], triton_versions: Sequence[str] = ()) -> dict[str, str]:
    """The pins of CUDA's parts that torch's requirements make, as docker/pins.toml writes them; empty where one lacks.

    triton_versions: of which the newest within its bounds is taken, where it is not pinned to one.
    """
    parts: dict[str, str] = {}
    for requirement in requirements:
        name, specifier = canonicalize_name(requirement.name), requirement.specifier
        pinned = next((each.version for each in specifier if each.operator == "=="), "")
        if name == "cuda-toolkit":
            parts["cuda"] = pinned
        elif re.fullmatch(r"nvidia-cuda-runtime-cu\d+", name):
            parts["cuda"] = ".".join(pinned.split(".")[:2])  # 12.4.127 is its own third number, not CUDA's
        elif re.fullmatch(r"nvidia-cudnn-cu\d+", name):
            parts["cudnn"] = ".".join(pinned.split(".")[:3])
        elif re.fullmatch(r"nvidia-nccl-cu\d+", name):
            parts["nccl"] = pinned
        elif name == "triton":
            parts["triton"] = pinned or next((each for each in triton_versions if specifier.contains(each)), "")
    wanted = ("cuda", "cudnn", "nccl", "triton")
    return {part: parts[part] for part in wanted} if all(parts.get(part) for part in wanted) else {}


def triton(index: Index, release: Release, metadata: Metadata) -> list[str]:
    """Triton's releases, the newest first, where this torch bounds it without a pin."""
    open_bound = any(each.name == "triton" and "==" not in str(each.specifier) for each in _requirements(metadata))
    if release.project != "torch" or not open_bound:
        return []
    return [str(each.version) for each in index.releases("triton") if each.is_for("3.11")]


def _parsed(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None


def _requirements(metadata: Metadata, python: str = "3.11") -> list[Requirement]:
    found: list[Requirement] = []
    here = _ENVIRONMENT | {"python_version": python, "python_full_version": f"{python}.0"}
    for text in metadata.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue  # of before the rules
        marker = requirement.marker
        if marker is None or any(marker.evaluate(here | {"extra": extra}) for extra in _EXTRAS):
            found.append(requirement)
    return found
