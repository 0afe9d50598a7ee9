"""A container for one command: gone afterwards, whether it started or not."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from docker import DockerClient
from docker.types import Mount
from requests.exceptions import ConnectionError, ReadTimeout

from berth.common import owner
from berth.common.errors import UserError


class CommandFailed(UserError):
    """The command ended with another exit code than 0; `complaint` is what it wrote to stderr."""

    def __init__(self, command: str, image: str, code: int, complaint: str) -> None:
        super().__init__(f"`{command}` failed in {image} with exit code {code}: {complaint}")
        self.code = code
        self.complaint = complaint


@dataclass(frozen=True, slots=True)
class Access:
    """What a container gets of this machine: mounts, device nodes, a network mode of Docker's (none or host), and
    variables.
    """

    mounts: Sequence[Mount] = ()
    devices: Sequence[str] = ()
    network: str = "none"
    environment: Mapping[str, str] = field(default_factory=dict)


ISOLATED = Access()


def run_once(
    client: DockerClient,
    image: str,
    command: Sequence[str],
    access: Access = ISOLATED,
    *,
    patience_s: float | None = None,
) -> bytes:
    """What `command` prints, run as root in `image` instead of its entrypoint; patience_s: how long it may take, None
    for as long as it likes.

    Raises CommandFailed if it fails, UserError if it takes too long, and docker's APIError if it can't be started. The
    SDK's own `containers.run` would leave a container that can't be started behind. Its labels name the owner: what a
    kill -9 leaves is found by them.
    """
    container = client.containers.create(
        image,
        list(command[1:]),
        entrypoint=list(command[:1]),
        user="0",
        network_mode=access.network,
        labels=owner.this_process().labels(f"once-{secrets.token_hex(6)}"),
        devices=[f"{node}:{node}" for node in access.devices],
        mounts=list(access.mounts),
        environment=dict(access.environment),
    )
    try:
        container.start()
        try:
            code = int(container.wait(timeout=patience_s)["StatusCode"])
        except (ReadTimeout, ConnectionError):  # the SDK raises either, by where the answer breaks off
            raise UserError(f"`{command[0]}` gives no answer in {image}: see that the engine is well.") from None
        if code != 0:
            complaint = container.logs(stdout=False, stderr=True).decode(errors="replace").strip()
            raise CommandFailed(command[0], image, code, complaint)
        printed: bytes = container.logs(stdout=True, stderr=False)
    finally:
        container.remove(force=True, v=True)
    return printed
