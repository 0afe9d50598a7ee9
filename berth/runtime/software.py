"""Which software set this image carries: /opt/berth/software.json, which the build lays there from docker/pins.toml.

`read` gives it, `described` is the line of a log that says it; `installed` asks for any package's version,
`is_installed` for a module.
"""

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
    """The set's name, the profile that it is in, and the variables that it wants in every Python's environment."""

    name: str
    profile: str
    environment: Mapping[str, str]


def read(path: Path = PATH) -> Software | None:
    """The set of this image; None outside of an image."""
    try:
        document = json.loads(path.read_text())
        return Software(document["name"], document["profile"], document["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def described(software: Software) -> str:
    """The set in a line, with the versions that a script looks at first."""
    versions = [f"{name} {found}" for name in SHOWN if (found := installed(name))]
    return f"software: set {software.name} of profile {software.profile}: {', '.join(versions)}"


def installed(package: str) -> str:
    """The version of a package in this image; empty for none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def is_installed(module: str) -> bool:
    """Whether a module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def kit_version() -> str:
    """The installed kit's version, so that hosts with different images don't train together."""
    return installed("berth") or "unknown"
