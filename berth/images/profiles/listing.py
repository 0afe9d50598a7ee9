"""Shows profiles: a table of all, or every detail of one from docker/pins.toml, its locks and the engine."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from berth.common import engine, labels
from berth.common.errors import UserError
from berth.common.image_names import image_name
from berth.contract import gpu_hosts
from berth.images.locks.lock_check import lock_problem
from berth.images.locks.lock_text import entries
from berth.images.locks.locks import image_locks
from berth.images.pins.pins import Pins, Profile

_UNKNOWN = "?"
SHOWN_PACKAGES = (
    *("numpy", "pandas", "pyarrow", "scipy", "fsspec"),
    *("tokenizers", "safetensors", "huggingface-hub", "sentencepiece", "protobuf"),
)
"""Packages that often break scripts and are not pinned in docker/pins.toml: `show` prints their locked versions."""


BuiltImages = Collection[str] | None
"""The names of berth's images on the engine; None if no engine answers."""


def built_images() -> BuiltImages:
    """Asks the engine for the names of berth's images."""
    try:
        images = engine.connect().images.list(filters={"label": labels.KIT})
    except UserError:
        return None
    return {tag for image in images for tag in image.tags}


def _state(images: BuiltImages, name: str) -> str:
    """`built`, `not built`, or `?` if no engine answers."""
    return _UNKNOWN if images is None else "built" if name in images else "not built"


def summary(profile: Profile, images: BuiltImages) -> dict[str, Any]:
    """A summary of a profile, for JSON."""
    return {
        "profile": profile.name,
        "hardware": profile.hardware,
        "software": profile.software.name,
        "torch": profile.torch,
        "transformers": profile.packages["transformers"],
        "images": {image: _state(images, image_name(image, profile.name)) for image in profile.images},
    }


def render_list(pins: Pins, images: BuiltImages) -> Table:
    """The table of all profiles, for a rich console."""
    names = ("profile", "hardware", "software", "torch", "transformers")
    table = Table(*names, "images", "built", box=None, padding=(0, 1, 0, 0))
    for profile in pins.profiles.values():
        row = summary(profile, images)
        built = [image for image, state in row["images"].items() if state == "built"]
        shown = _UNKNOWN if images is None else ", ".join(built) or "–"
        table.add_row(*(Text(row[name]) for name in names), Text(", ".join(row["images"])), Text(shown))
    return table


def details(pins: Pins, profile: Profile, locks: Path, images: BuiltImages) -> dict[str, Any]:
    """All of a profile, for JSON."""
    software = profile.software
    return summary(profile, images) | {
        "from": profile.origin,
        "python": profile.python,
        "torch_index": profile.torch_index,
        "cuda": dict(profile.cuda),
        "driver": driver(profile),
        "files": {part: file.version for part, file in profile.files.items()},
        "packages": dict(profile.packages),
        "requirements": list(software.requirements),
        "constraints": list(software.constraints),
        "day": software.day,
        "environment": dict(software.environment),
        "budget": dict(profile.budget),
        "locks": {image: lock_problem(pins, profile, image, locks) or "up to date" for image in profile.images},
        "locked": {image: locked(profile, image, locks) for image in profile.images},
    }


def driver(profile: Profile) -> str:
    """The oldest branch of NVIDIA's driver that runs the profile's CUDA; empty without CUDA, or if unknown."""
    needed = gpu_hosts.needed_driver(gpu_hosts.parse(profile.cuda["cuda"])) if profile.cuda else None
    return str(needed or "")


def locked(profile: Profile, image: str, locks: Path) -> dict[str, str]:
    """The locked version of each package of an image, by name; empty if there are no locks."""
    found: dict[str, str] = {}
    for lock in image_locks(profile, image):
        if (locks / lock).exists():
            found |= {name: version for name, version, _ in entries((locks / lock).read_text())}
    return dict(sorted(found.items()))


def shown_versions(locked: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The locked versions of SHOWN_PACKAGES; both if the images differ."""
    shown = []
    for name in SHOWN_PACKAGES:
        versions = {image: packages[name] for image, packages in locked.items() if name in packages}
        if len({*versions.values()}) > 1:
            shown.append(f"{name} " + " and ".join(f"{each} ({image})" for image, each in versions.items()))
        elif versions:
            shown.append(f"{name} {next(iter(versions.values()))}")
    return shown


def render_details(found: Mapping[str, Any]) -> Table:
    """All of a profile, for a rich console; empty values are skipped."""
    table = Table.grid(padding=(0, 2))
    for key, value in found.items():
        if not value or key == "profile":
            continue
        label = key.replace("_", " ")
        if key == "locked":
            table.add_row(Text("also locked"), Text(", ".join(shown_versions(value)) or "nothing"))
            label, value = "locked packages", {image: len(packages) for image, packages in value.items()}
        if isinstance(value, Mapping):
            value = ", ".join(f"{name} {each}" for name, each in value.items())
        elif isinstance(value, list):
            value = ", ".join(value)
        elif key == "driver":
            value = f"{value} or newer"
        table.add_row(Text(label), Text(str(value)))
    return table
