"""A container for one command: no network, gone afterwards, whether it started or not."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from docker import DockerClient
from docker.types import Mount

from berth.images import owner
from berth.images.errors import UserError


def run_once(
    client: DockerClient,
    image: str,
    command: Sequence[str],
    mount: tuple[Path, str] | None = None,
    devices: Sequence[str] = (),
) -> bytes:
    """What `command` prints, run as root in `image` instead of its entrypoint; mount: (path here, path there); devices:
    nodes of this machine's to hand in.

    Raises UserError if it fails, and docker's APIError if it can't be started. The SDK's own `containers.run` would
    leave a container that can't be started behind. Its labels name the owner: what a kill -9 leaves is found by them.
    """
    container = client.containers.create(
        image,
        list(command[1:]),
        entrypoint=list(command[:1]),
        user="0",
        network_mode="none",
        labels=owner.this_process().labels(f"once-{secrets.token_hex(6)}"),
        devices=[f"{node}:{node}" for node in devices],
        mounts=[Mount(mount[1], str(mount[0]), type="bind")] if mount else [],
    )
    try:
        container.start()
        code = container.wait()["StatusCode"]
        if code != 0:
            told = container.logs(stdout=False, stderr=True).decode(errors="replace").strip()
            raise UserError(f"`{command[0]}` failed in {image} with exit code {code}: {told}")
        printed: bytes = container.logs(stdout=True, stderr=False)
    finally:
        container.remove(force=True, v=True)
    return printed
