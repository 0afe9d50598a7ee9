"""Removes what a run made on the engine and on disk: at its end, or later if it was killed.

Runs are found by their labels, scratch folders by the record in them. Other runs' things are removed only if their
owner's process has ended.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
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
"""Parallel calls to the engine for containers: more are not faster, and the engine stays responsive."""


def scratch_root() -> Path:
    """The folder of this user's runs; UserError unless it is his and nobody else can read or write it."""
    root = Path(tempfile.gettempdir()) / f"berth-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not root.is_dir() or root.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UserError(f"{root} is not a private folder of yours: remove it, or set TMPDIR to a folder of your own.")
    return root


def remove_run(client: DockerClient, run_id: str, say: Callable[[str], None]) -> int:
    """Removes a run's containers and network, and returns how many; missing ones are ignored.

    If the engine refuses to remove one, a warning says what to do.
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
            f"Warning: the engine did not remove {', '.join(refused)}. This does no harm; after a restart of the "
            "engine (`sudo systemctl restart docker`) the next run removes it."
        )
    return len(found) + len(networks) - len(refused)


def call_engine(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Makes many calls to the engine, a few in parallel; returns each one's error, empty if it succeeded."""
    return run_all(calls, lambda call, _: _refusal(call), workers=CALLS_AT_ONCE)


def _refusal(call: Callable[[], object]) -> str:
    """The engine's error; empty if the call succeeded, or if the object is gone, stopped or being removed."""
    return engine.refusal(call, (404, 409))


def remove_stale_runs(client: DockerClient, image: str, say: Callable[[str], None]) -> None:
    """Removes containers, networks and folders of runs whose owner has ended. Runs whose owner is alive, or on another
    machine, stay.

    image: used to give root's files to the caller.
    """
    for run_id in dict.fromkeys(run_id for _, run_id in owner.left_behind(client)):
        if count := remove_run(client, run_id, say):
            say(f"Removed {count} container(s) and network(s) that the run {run_id} had left behind.")
    for folder in scratch_root().iterdir():
        run_owner = owner.from_labels(_record(folder))
        if run_owner is not None and owner.is_gone(run_owner):
            try:
                remove_scratch(client, image, folder)
            except (OSError, APIError, UserError) as error:
                say(f"Warning: {folder}, which an earlier run left behind, can't be removed ({error}): remove it.")


def remove_scratch(client: DockerClient, image: str, folder: Path) -> None:
    """Removes a run's folder, including files of root."""
    # Another run may remove the same folder at the same time: only one of them can rename it.
    renamed = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        folder.rename(renamed)
    except FileNotFoundError:
        return
    try:
        shutil.rmtree(renamed)
    except PermissionError:
        chown_folder(client, image, renamed)
        shutil.rmtree(renamed)


def _record(folder: Path) -> dict[str, str]:
    try:
        found: Any = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
