"""The packages in the locks, with each version and the images and profiles that have it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.common.errors import UserError
from berth.images.locks.lock_text import entries
from berth.images.locks.locks import BUILD_TOOLS, image_locks
from berth.images.pins import pins

_NAMED = 8


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package in one version. images, profiles: those whose locks have it; both empty for build tools."""

    name: str
    version: str
    images: tuple[str, ...]
    profiles: tuple[str, ...]


def packages_of(all_pins: pins.Pins, profiles: Sequence[str], texts: Mapping[str, str]) -> list[LockedPackage]:
    """Every package of the profiles' images, sorted by name and version; texts: locks by path, such as build.txt."""
    holders: dict[tuple[str, str], set[str]] = {key: set() for key in _versions(texts, [BUILD_TOOLS]).items()}
    for profile in map(all_pins.profile, profiles):
        for image in profile.images:
            for key in _versions(texts, image_locks(profile, image)).items():
                holders.setdefault(key, set()).update((image, profile.name))
    return [
        LockedPackage(
            *key,
            images=tuple(image for image in pins.IMAGES if image in held),
            profiles=tuple(name for name in profiles if name in held),
        )
        for key, held in sorted(holders.items())
    ]


def _versions(texts: Mapping[str, str], paths: Sequence[str]) -> dict[str, str]:
    """The version of each package in these locks; later locks are of higher layers and win."""
    return {name: version for path in paths for name, version, _ in entries(texts.get(path, ""))}


def lock_texts(locks: Path) -> dict[str, str]:
    """The texts of the locks of Python packages, by path; UserError if there are none."""
    texts = {path.relative_to(locks).as_posix(): path.read_text() for path in sorted(locks.rglob("*.txt"))}
    if not texts:
        raise UserError(f"there are no locks in {locks}: run `python build.py pins`, which writes them.")
    return texts


def some(names: Iterable[str]) -> str:
    """The first 8 distinct names, and how many more there are."""
    every = sorted(set(names))
    more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more
