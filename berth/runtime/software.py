"""The software set of this image, from /opt/berth/software.json, which the build writes from docker/pins.toml."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PATH = Path("/opt/berth/software.json")
SHOWN = ("transformers", "accelerate", "datasets", "torch")


@dataclass(frozen=True)
class Software:
    """The set's name, its profile, and the variables that it sets for every Python in the image."""

    name: str
    profile: str
    environment: Mapping[str, str]


def read(path: Path = PATH) -> Software | None:
    """The software set of this image; None outside an image."""
    try:
        document = json.loads(path.read_text())
        return Software(document["name"], document["profile"], document["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def described(software: Software) -> str:
    """A log line with the set and the versions of the main packages."""
    versions = [f"{name} {number}" for name in SHOWN if (number := installed(name))]
    return f"software: set {software.name} of profile {software.profile}: {', '.join(versions)}"


def installed(package: str) -> str:
    """The version of an installed package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def is_installed(module: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def kit_version() -> str:
    """berth's version; hosts compare it, so that different images don't train together."""
    return installed("berth") or "unknown"
