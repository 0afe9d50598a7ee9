"""Updates of an image's Debian packages, as apt in a container of the image finds them: so the image's own sources, or
this network's mirror, and dpkg's own order of versions decide.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.errors import APIError
from docker.types import Mount

from berth.common.containers import Access, CommandFailed, run_once
from berth.common.errors import UserError
from berth.common.http import without_password
from berth.images.network.build_network import Network
from berth.images.pins import pins
from berth.images.scratch import SECRETS, scratch_folder
from berth.images.selection import find_built_image

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
