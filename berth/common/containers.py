"""A container for one command: gone afterwards, whether it started or not."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from docker import DockerClient
from docker.types import LogConfig, Mount
from requests.exceptions import ConnectionError, ReadTimeout

from berth.common import owner
from berth.common.concurrency import BackgroundTask
from berth.common.errors import UserError


class CommandFailed(UserError):
    """The command ended with a non-zero exit code; `complaint` is its stderr."""

    def __init__(self, command: str, image: str, code: int, complaint: str) -> None:
        super().__init__(f"`{command}` failed in {image} with exit code {code}: {complaint}")
        self.code = code
        self.complaint = complaint


@dataclass(frozen=True, slots=True)
class Access:
    """What a container gets: mounts, device nodes, Docker's network mode (none or host) and variables."""

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
    """Runs `command` as root in `image`, in place of its entrypoint, and returns its stdout. patience_s: the time-out,
    None for no time-out.

    Raises CommandFailed if it fails, UserError if it takes too long, and docker's APIError if it can't be started. Not
    the SDK's `containers.run`, which leaves a container that can't be started behind. Labels name the owner, so that a
    later run removes the container after a kill -9. The output is read with `attach`, because some log drivers don't
    return it or cut it.
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
        log_config=LogConfig(type="none"),
    )
    try:
        output = BackgroundTask(partial(_read, container.attach(stream=True, demux=True)))
        container.start()
        try:
            code = int(container.wait(timeout=patience_s)["StatusCode"])
        except (ReadTimeout, ConnectionError):  # a time-out is either, depending on where the answer breaks off
            raise UserError(f"`{command[0]}` does not finish in {image}: check the engine, then try again.") from None
        printed, complaint = output.result()
    finally:
        container.remove(force=True, v=True)
    if code != 0:
        raise CommandFailed(command[0], image, code, complaint.decode(errors="replace").strip())
    return printed


def _read(stream: Iterable[tuple[bytes | None, bytes | None]]) -> tuple[bytes, bytes]:
    """All of stdout and of stderr."""
    printed, complaint = bytearray(), bytearray()
    for out, error in stream:
        printed += out or b""
        complaint += error or b""
    return bytes(printed), bytes(complaint)
