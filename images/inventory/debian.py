"""Debian's packages in the images, which no lock can hold: the archive moves, and drops what it replaces.

So the versions that were tested are recorded, in docker/debian/PROFILE.txt, and `moved_on` says in one sentence
what another build got instead. `ask_archive` asks the archive itself, by apt in a container of the image, so that the
image's own sources, or this network's mirror, and dpkg's own order of versions decide.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError
from docker.types import Mount

from berth.common.containers import Access, CommandFailed, run_once
from berth.common.errors import UserError
from berth.common.files import atomic_write, explain_os_errors
from berth.common.http import without_password
from berth.images import pins
from berth.images.build_network import Network
from berth.images.inventory.packages import BillPackage
from berth.images.scratch import SECRETS, scratch_folder
from berth.images.selection import find_built_image

RECORDS = pins.ROOT / "docker" / "debian"
_HEAD = "# Debian's packages in the images as they were tested; made by build.py, never edited by hand.\n"
_NAMED = 5  # in a sentence
_LINE = re.compile(r"Inst (?P<name>\S+) \[(?P<installed>[^]]+)\] \((?P<candidate>\S+) (?P<archives>.*?)(?: \[\w+\])?\)")
_SECURITY = "Debian-Security"
_ASK = """set -eu
. /run/berth/common.sh
apt_get -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any update -qq
APT_CONFIG=${APT_CONFIG:-/dev/null} apt-cache policy | sed -n 's/^ *release /Release /p'
apt_get -qq --simulate dist-upgrade
"""


@dataclass(frozen=True, slots=True)
class Update:
    """A package that the archive has a newer version of; security: whether Debian's security archive brings it."""

    name: str
    installed: str
    candidate: str
    security: bool


def record_path(profile: str, records: Path = RECORDS) -> Path:
    """Where the versions of a profile are recorded."""
    return records / f"{profile}.txt"


def record_of(kit: pins.Pins, profile: str, records: Path = RECORDS) -> Path | None:
    """Where the versions of a profile's images stand: its own record, or that of the row that it comes from; None where
    there is neither.
    """
    names = [profile]
    while origin := kit.profile(names[-1]).origin:
        names.append(origin)
    return next((path for name in names if (path := record_path(name, records)).exists()), None)


def record(packages: Iterable[BillPackage]) -> str:
    """The text of a record: a line `name version` for each of Debian's packages, in both images of a profile."""
    lines = sorted({f"{package.name} {package.version}\n" for package in packages if package.kind == "deb"})
    return _HEAD + "".join(lines)


def recorded(text: str) -> dict[str, str]:
    """The versions of a record, by package."""
    return dict(line.split(" ", 1) for line in text.splitlines() if " " in line and not line.startswith("#"))


def write_record(packages: Iterable[BillPackage], profile: str, records: Path = RECORDS) -> Path:
    """Records a profile's versions; the path."""
    path = record_path(profile, records)
    with explain_os_errors(path.parent, path.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as new:
            new.write_text(record(packages))
    return path


def moved_on(kept: Path | None, packages: Iterable[BillPackage]) -> str:
    """What of an image's packages is not as recorded, and what to do, in one sentence; empty where all is, or nothing
    is recorded.

    kept: the profile's record. A package that is recorded and not in the image is of the other image.
    """
    if kept is None:
        return ""
    versions = recorded(kept.read_text())
    changes = [
        f"{package.name} {versions.get(package.name, 'not recorded')} → {package.version}"
        for package in packages
        if package.kind == "deb" and versions.get(package.name) != package.version
    ]
    if not changes:
        return ""
    more = f" and {len(changes) - _NAMED} more" if len(changes) > _NAMED else ""
    return (
        f"Debian's archive has moved on since docker/debian/{kept.name} was recorded: "
        f"{', '.join(changes[:_NAMED])}{more}; test the images, then record what they hold."
    )


def updates(printed: str) -> list[Update]:
    """What apt's simulation of an upgrade would bring, by name; what it would install besides is left out.

    UserError where none of its archives is Debian's security archive, for then silence says nothing.
    """
    if f"l={_SECURITY}" not in printed:
        raise UserError(
            "none of the image's package archives is Debian's security archive, so what it would fix is not known: "
            "add a source of bookworm-security to the base image, or to this machine's mirror."
        )
    found = [match for line in printed.splitlines() if (match := _LINE.match(line))]
    made = [Update(m["name"], m["installed"], m["candidate"], f"{_SECURITY}:" in m["archives"]) for m in found]
    return sorted(made, key=lambda update: (not update.security, update.name))


def ask_archive(client: DockerClient, image: str, network: Network, cache: Path | None = None) -> list[Update]:
    """What Debian's archive has newer than an image holds; UserError where it can't be asked.

    network: this machine's, whose apt settings, mirror and CA the container reads as a build does; cache: where the
    folder for them is made, by default the user's own.
    """
    find_built_image(client, image)
    with scratch_folder(SECRETS, cache or pins.CACHE) as folder:
        network.write_secrets(folder)
        return updates(_ask(client, image, network, folder))


def _ask(client: DockerClient, image: str, network: Network, secrets: Path) -> str:
    """What apt prints in a container of the image that reads this folder of secrets."""
    # The script that sets up apt in every layer of a build.
    script = pins.ROOT / "docker" / "layers" / "common.sh"
    mounts = [
        Mount("/run/secrets", str(secrets.absolute()), type="bind", read_only=True),
        Mount("/run/berth/common.sh", str(script), type="bind", read_only=True),
    ]
    environment = {name: os.environ[name] for name in network.proxies if name in os.environ}
    try:
        printed = run_once(client, image, ["sh", "-c", _ASK], Access(mounts, network="host", environment=environment))
    except CommandFailed as failed:
        last = (without_password(failed.complaint).splitlines() or [f"exit code {failed.code}"])[-1]
        raise UserError(
            f"Debian's archive can't be asked for updates of {image} ({last.strip()}): look at the network, and at "
            "this machine's settings of apt, which a build uses as well."
        ) from None  # its sentence may hold a password
    except APIError as error:
        raise UserError(f"{image} can't be started to ask Debian's archive: {error.explanation or error}.") from None
    return printed.decode(errors="replace")
