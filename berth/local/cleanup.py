"""What a run leaves on the engine and on disk, and its removal: at its own end, or later if it was killed.

Runs are found by their labels, folders by the record in them; of others' only what a dead owner left is removed.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError

from berth.common import engine, labels, owner
from berth.common.concurrency import run_all
from berth.common.errors import UserError
from berth.local.chown import chown_folder

RECORD = "owner.json"
CALLS_AT_ONCE = 8
"""To the engine, for containers: more are no faster, and it answers others meanwhile."""


def scratch_root() -> Path:
    """The folder of this user's runs, which nobody else can read or prepare for him."""
    root = Path(tempfile.gettempdir()) / f"berth-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not root.is_dir() or root.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UserError(f"{root} is not a private folder of yours: remove it, or set TMPDIR to a folder of your own.")
    return root


def remove_run(client: DockerClient, run_id: str, say: Callable[[str], None]) -> int:
    """Removes a run's containers and network; what is gone already is no error. Returns how many things went.

    What the engine will not remove is named by `say`, with what helps, and stays: it is in nobody's way.
    """
    label = {"label": f"{labels.RUN}={run_id}"}
    found = client.api.containers(all=True, filters=label)
    names = [str(each["Names"][0]).lstrip("/") if each.get("Names") else each["Id"] for each in found]
    calls = [partial(client.api.remove_container, each["Id"], force=True, v=True) for each in found]
    refused = [f"the container {name} ({why})" for name, why in zip(names, call_engine(calls), strict=True) if why]
    networks = client.networks.list(filters=label)
    refused += [f"the network {each.name} ({why})" for each in networks if (why := _refusal(each.remove))]
    if refused:
        say(
            f"Warning: the engine did not remove {', '.join(refused)}. It is in nobody's way; a restart of the engine "
            "(`sudo systemctl restart docker`) frees it, and the next run then removes it."
        )
    return len(found) + len(networks) - len(refused)


def call_engine(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Calls the engine for many things, a few at a time; why it refused each, empty where it did not."""
    return run_all(calls, lambda call, _: _refusal(call), workers=CALLS_AT_ONCE)


def _refusal(call: Callable[[], object]) -> str:
    """Why the engine would not; empty if it did, or if the thing is gone, was stopped before or is just going."""
    return engine.refusal(call, (404, 409))


def remove_stale_runs(client: DockerClient, image: str, say: Callable[[str], None]) -> None:
    """Removes what runs left whose owner was killed; runs whose owner lives, or can't be seen from here, stay.

    image: gives files of root's to the caller, where the image of that run is gone.
    """
    left: dict[str, None] = {}
    found = client.containers.list(all=True, filters={"label": labels.RUN}, ignore_removed=True)
    labelled: list[Mapping[str, str]] = [each.labels for each in found]
    labelled += [each.attrs.get("Labels") or {} for each in client.networks.list(filters={"label": labels.RUN})]
    for each in labelled:
        whose = owner.from_labels(each)
        if whose is not None and owner.is_gone(whose):
            left[each[labels.RUN]] = None
    for run_id in left:
        if count := remove_run(client, run_id, say):
            say(f"Removed {count} container(s) and network(s) that the run {run_id} had left behind.")
    for folder in scratch_root().iterdir():
        whose = owner.from_labels(_record(folder))
        if whose is not None and owner.is_gone(whose):
            try:
                remove_scratch(client, image, folder)
            except (OSError, APIError, UserError) as error:
                say(f"Warning: {folder}, which an earlier run left behind, can't be removed ({error}): remove it.")


def remove_scratch(client: DockerClient, image: str, folder: Path) -> None:
    """Removes a run's folder, files of root's included."""
    # Another run may remove the same folder at this moment: only one of them can rename it.
    going = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        folder.rename(going)
    except FileNotFoundError:
        return
    try:
        shutil.rmtree(going)
    except PermissionError:
        chown_folder(client, image, going)
        shutil.rmtree(going)


def _record(folder: Path) -> dict[str, str]:
    try:
        found: Any = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
