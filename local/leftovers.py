"""What a run leaves on the engine and on disk, and its removal: at its own end, or later if it was killed.

Runs are found by their labels, folders by the record in them; only what a dead owner left is ever swept.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.types import Mount

from berth.images import labels, owner
from berth.images.errors import UserError
from berth.images.throwaway import run_once

RECORD = "owner.json"


def scratch_root() -> Path:
    """The folder of this user's runs, which nobody else can read or prepare for him."""
    root = Path(tempfile.gettempdir()) / f"berth-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not root.is_dir() or root.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UserError(f"{root} is not a private folder of yours: remove it, or set TMPDIR to a folder of your own.")
    return root


def containers_of(client: DockerClient, run_id: str) -> list[Container]:
    """The containers of a run, in whatever state."""
    found: list[Container] = client.containers.list(
        all=True, filters={"label": f"{labels.RUN}={run_id}"}, ignore_removed=True
    )
    return found


def remove_run(client: DockerClient, run_id: str) -> int:
    """Removes a run's containers and network; what is gone already is no error. Returns how many things there were."""
    containers = containers_of(client, run_id)
    for container in containers:
        quietly(partial(container.remove, force=True, v=True))
    networks = client.networks.list(filters={"label": f"{labels.RUN}={run_id}"})
    for network in networks:
        quietly(network.remove)
    return len(containers) + len(networks)


def sweep(client: DockerClient, say: Callable[[str], None]) -> None:
    """Removes what runs left whose owner was killed; runs whose owner lives, or can't be seen from here, stay."""
    left: dict[str, None] = {}
    found = client.containers.list(all=True, filters={"label": labels.RUN}, ignore_removed=True)
    marks: list[Mapping[str, str]] = [each.labels for each in found]
    marks += [each.attrs.get("Labels") or {} for each in client.networks.list(filters={"label": labels.RUN})]
    for mark in marks:
        whose = owner.from_labels(mark)
        if whose is not None and owner.is_gone(whose):
            left[mark[labels.RUN]] = None
    for run_id in left:
        count = remove_run(client, run_id)
        say(f"Removed {count} container(s) and network(s) that the run {run_id} had left behind.")
    for folder in scratch_root().iterdir():
        record = _record(folder)
        whose = owner.from_record(record)
        if whose is not None and owner.is_gone(whose):
            remove_scratch(client, record["image"], folder)


def remove_scratch(client: DockerClient, image: str, folder: Path) -> None:
    """Removes a run's folder, files of root's included."""
    # Another run may sweep the same folder at this moment: only one of them can rename it.
    going = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        folder.rename(going)
    except FileNotFoundError:
        return
    try:
        shutil.rmtree(going)
    except PermissionError:
        hand_over(client, image, going)
        shutil.rmtree(going)


def hand_over(client: DockerClient, image: str, folder: Path) -> None:
    """Makes all files in `folder` the caller's, by a throw-away container, for only root may do that."""
    if os.getuid() == 0 or all(path.lstat().st_uid == os.getuid() for path in folder.rglob("*")):
        return
    command = ["chown", "-R", f"{os.getuid()}:{os.getgid()}", "/handed-over"]
    run_once(client, image, command, mounts=[Mount("/handed-over", str(folder), type="bind")])


def _record(folder: Path) -> dict[str, str]:
    try:
        found: Any = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def quietly(call: Callable[[], object]) -> None:
    """Calls; an engine that says "no such container", "already stopped" or "removal in progress" is no error here."""
    try:
        call()
    except APIError as error:
        if error.status_code not in (404, 409):
            raise
