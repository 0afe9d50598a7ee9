"""The image with the versions that a script needs: a profile of berth, or the command that adds one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from berth.runtime import software
from berth.runtime.gpu.driver import torch_cuda


@dataclass(frozen=True, slots=True)
class KnownProfile:
    """A profile of docker/pins.toml: its hardware, and its version of transformers."""

    hardware: str
    transformers: str


PROFILES = {
    "cpu": KnownProfile("cpu", "5.23.0"),
    "cpu-hf4": KnownProfile("cpu", "4.26.0"),
    "cu130": KnownProfile("cu130", "5.23.0"),
    "cu124": KnownProfile("cu124", "5.15.0"),
    "cu124-hf4": KnownProfile("cu124", "4.26.0"),
}
# The oldest transformers for which `profile add` can make an image. Below 4.45 it needs `--day`, because packages of
# that time are incompatible with the image's others. Tried: 4.40.2, 4.45.2, 4.46.3, 4.49.0, 4.57.6, 5.10.2.
_OLDEST_ADDED, _OLDEST_WITHOUT_DAY, _LATER_DAY = Version("4.40"), Version("4.45"), "2024-12-01"


@dataclass(frozen=True, slots=True)
class ThisImage:
    """This image: its profile, the CUDA of its torch ("" for a CPU build) and versions of packages that scripts use."""

    profile: str = ""
    cuda: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def hardware(self) -> str:
        """The profile for the option `--from` of `profile add`."""
        if self.profile in PROFILES:
            return PROFILES[self.profile].hardware
        return f"cu{self.cuda.replace('.', '')}" if self.cuda else "cpu"


def this_image(path: Path = software.PATH) -> ThisImage:
    """The image that this process runs in."""
    carried = software.read(path)
    names = ("transformers", "accelerate", "datasets", "evaluate", "torch")
    versions = {name: number for name in names if (number := software.installed(name))}
    return ThisImage(carried.profile if carried else "", torch_cuda() or "", versions)


def image_with(transformers: str, here: ThisImage, more: Mapping[str, str] | None = None) -> str:
    """The image in which a script for that version of transformers runs.

    Examples: `profile cpu-hf4 has transformers 4.26`; `python build.py profile add mine --from cpu --transformers
    4.46.3 makes an image for it`. more: versions of other packages, by the option's name.
    """
    try:
        version = Version(transformers)
    except InvalidVersion:
        return ""
    profiles = [name for name, row in PROFILES.items() if row.hardware == here.hardware]
    for name in profiles:
        if Version(PROFILES[name].transformers).release[:2] == version.release[:2] and name != here.profile:
            return _has(name)
    if version < _OLDEST_ADDED:
        old = next((name for name in profiles if name.endswith("-hf4")), "cpu-hf4")
        return _has(old)
    day = {"day": _LATER_DAY} if version < _OLDEST_WITHOUT_DAY else {}
    return f"{add_command(here, {'transformers': transformers, **(more or {}), **day})} makes an image for it"


def _has(profile: str) -> str:
    return f"profile {profile} has transformers {'.'.join(PROFILES[profile].transformers.split('.')[:2])}"


def add_command(here: ThisImage, versions: Mapping[str, str]) -> str:
    """The command that adds a profile with these versions."""
    options = " ".join(f"--{name} {version}" for name, version in versions.items())
    return f"`python build.py profile add mine --from {here.hardware} {options}`"
