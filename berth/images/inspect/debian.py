"""Finds updates of an image's Debian packages with apt in a container of the image. So it uses the image's sources, or
this network's mirror, and dpkg's own order of versions.
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
_SCRIPT = """set -eu
. /run/berth/common.sh
apt_get -o APT::Sandbox::User=root -o APT::Update::Error-Mode=any update -qq
APT_CONFIG=${APT_CONFIG:-/dev/null} apt-cache policy | sed -n 's/^ *release /Release /p'
apt_get -qq --simulate dist-upgrade
"""


@dataclass(frozen=True, slots=True)
class Update:
    """A package with a newer version in the archive; security: whether it is in Debian's security archive."""

    name: str
    installed: str
    candidate: str
    security: bool


def updates(printed: str) -> list[Update]:
    """The upgrades in the output of apt's simulation, by name; new dependencies are skipped.

    UserError if the security archive is not among apt's archives, because then no update does not mean secure.
    """
    if f"l={_SECURITY}" not in printed:
        raise UserError(
            "none of the image's package archives is Debian's security archive, so missing security updates are "
            "unknown: add a source of bookworm-security to the base image, or to this machine's mirror."
        )
    matches = [match for line in printed.splitlines() if (match := _LINE.match(line))]
    upgrades = [Update(m["name"], m["installed"], m["candidate"], f"{_SECURITY}:" in m["archives"]) for m in matches]
    return sorted(upgrades, key=lambda update: (not update.security, update.name))


def ask_archive(client: DockerClient, image: str, network: Network, cache: Path | None = None) -> list[Update]:
    """The packages of an image that are newer in Debian's archive; UserError if it can't be asked.

    network: this machine's; the container uses its apt settings, mirror and CA, as a build does. cache: where the
    folder for them is made; default: the user's cache.
    """
    find_built_image(client, image)
    with scratch_folder(SECRETS, cache or pins.CACHE) as folder:
        network.write_secrets(folder)
        return updates(_ask(client, image, network, folder))


def _ask(client: DockerClient, image: str, network: Network, secrets: Path) -> str:
    """The output of apt in a container of the image with this folder of secrets."""
    # The script that sets up apt in every layer of a build.
    script = pins.ROOT / "docker" / "layers" / "common.sh"
    mounts = [
        Mount("/run/secrets", str(secrets.absolute()), type="bind", read_only=True),
        Mount("/run/berth/common.sh", str(script), type="bind", read_only=True),
    ]
    environment = {name: os.environ[name] for name in network.proxies if name in os.environ}
    try:
        printed = run_once(
            client, image, ["sh", "-c", _SCRIPT], Access(mounts, network="host", environment=environment)
        )
    except CommandFailed as failed:
        last = (without_password(failed.complaint).splitlines() or [f"exit code {failed.code}"])[-1]
        raise UserError(
            f"Debian's archive can't be asked for updates of {image} ({last.strip()}): look at the network, and at "
            "this machine's settings of apt, which a build uses as well."
        ) from None  # the cause may contain a password
    except APIError as error:
        raise UserError(f"{image} can't be started to ask Debian's archive: {error.explanation or error}.") from None
    return printed.decode(errors="replace")
