"""What the locks of the images hold: each package in each version, and for which profiles."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.common.errors import UserError
from berth.images import pins
from berth.images.locks import cuda_requirements

_NAMED = 8


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package in one version; `images` and `profiles` are those whose locks have it, both empty for build tools.

    pinned: whether docker/pins.toml names the version, so that a newer one is chosen there; else the locks alone do.
    """

    name: str
    version: str
    images: tuple[str, ...]
    profiles: tuple[str, ...]
    pinned: bool


def packages_of(kit: pins.Pins, profiles: Sequence[str], texts: Mapping[str, str]) -> list[LockedPackage]:
    """Every package of the profiles' locks, by name and version; texts by path, such as deps/serve-cpu.txt."""
    holders: dict[tuple[str, str], set[str]] = {}
    for path, text in sorted(texts.items()):
        images, of = _holders(path)
        if of and of not in profiles:
            continue
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^ \\\n]+)", text, flags=re.MULTILINE):
            holders.setdefault((name, version), set()).update((*images, of))
    named = {*kit.build_tools}
    for profile_name in profiles:
        profile = kit.profile(profile_name)
        named |= {*profile.packages, *(each.partition("==")[0] for each in cuda_requirements(profile))}
    return [
        LockedPackage(
            *key,
            images=tuple(image for image in pins.IMAGES if image in held),
            profiles=tuple(name for name in profiles if name in held),
            pinned=key[0] in named,
        )
        for key, held in sorted(holders.items())
    ]


def _holders(path: str) -> tuple[Sequence[str], str]:
    """The images that a lock is for, and its profile; neither for the build's own tools."""
    layer, _, name = path.removesuffix(".txt").partition("/")
    if layer == "build":
        return (), ""
    image, _, profile = name.rpartition("-")
    if layer == "openmpi":
        image = "train"
    return (image,) if image else pins.IMAGES, profile


def lock_texts(locks: Path) -> dict[str, str]:
    """The texts of the locks of Python packages, by path; UserError where there is none."""
    texts = {path.relative_to(locks).as_posix(): path.read_text() for path in sorted(locks.glob("*/*.txt"))}
    if not texts:
        raise UserError(f"there are no locks in {locks}: run `python build.py pins`, which makes them.")
    return texts


def some(names: Iterable[str]) -> str:
    """The first of some names, and how many more."""
    every = sorted(names)
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more
