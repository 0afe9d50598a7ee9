"""What a run leaves on the engine and on disk, and its removal: at its own end, or later if it was killed.

Runs are found by their labels, folders by the record in them; only what a dead owner left is ever swept.
"""

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import APIError
from docker.types import Mount

from berth.common import engine, labels, owner
from berth.common.containers import Access, run_once
from berth.common.errors import UserError

RECORD = "owner.json"
CALLS_AT_ONCE = 8
"""To the engine, for containers: more are no faster, and it answers others meanwhile."""
_HANDED_OVER = "/handed-over"


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

    What the engine will not remove is named by `say`, with what heals it, and stays: it is in nobody's way.
    """
    label = {"label": f"{labels.RUN}={run_id}"}
    found = client.api.containers(all=True, filters=label)
    names = [str(each["Names"][0]).lstrip("/") if each.get("Names") else each["Id"] for each in found]
    calls = [partial(client.api.remove_container, each["Id"], force=True, v=True) for each in found]
    refused = [f"the container {name} ({why})" for name, why in zip(names, at_once(calls), strict=True) if why]
    networks = client.networks.list(filters=label)
    refused += [f"the network {each.name} ({why})" for each in networks if (why := _refusal(each.remove))]
    if refused:
        say(
            f"Warning: the engine did not remove {', '.join(refused)}. It is in nobody's way; a restart of the engine "
            "(`sudo systemctl restart docker`) frees it, and the next run then removes it."
        )
    return len(found) + len(networks) - len(refused)


def at_once(calls: Sequence[Callable[[], object]]) -> list[str]:
    """Calls the engine for many things, a few at a time; why it refused each, empty where it did not."""
    if not calls:
        return []
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        return list(pool.map(_refusal, calls))


def _refusal(call: Callable[[], object]) -> str:
    """Why the engine would not; empty if it did, or if the thing is gone, was stopped before or is just going."""
    return engine.refusal(call, (404, 409))


def sweep(client: DockerClient, image: str, say: Callable[[str], None]) -> None:
    """Removes what runs left whose owner was killed; runs whose owner lives, or can't be seen from here, stay.

    image: gives files of root's to the caller, where the image of that run is gone.
    """
    left: dict[str, None] = {}
    found = client.containers.list(all=True, filters={"label": labels.RUN}, ignore_removed=True)
    marks: list[Mapping[str, str]] = [each.labels for each in found]
    marks += [each.attrs.get("Labels") or {} for each in client.networks.list(filters={"label": labels.RUN})]
    for mark in marks:
        whose = owner.from_labels(mark)
        if whose is not None and owner.is_gone(whose):
            left[mark[labels.RUN]] = None
    for run_id in left:
        if count := remove_run(client, run_id, say):
            say(f"Removed {count} container(s) and network(s) that the run {run_id} had left behind.")
    for folder in scratch_root().iterdir():
        whose = owner.from_record(_record(folder))
        if whose is not None and owner.is_gone(whose):
            try:
                remove_scratch(client, image, folder)
            except (OSError, APIError, UserError) as error:
                say(f"Warning: {folder}, which an earlier run left behind, can't be removed ({error}): remove it.")


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
    """Makes all files in `folder`, which a run made, the caller's, by a throw-away container: only root may do that."""
    if os.getuid() == 0 or all(path.lstat().st_uid == os.getuid() for path in folder.rglob("*")):
        return
    _as_root(client, image, folder, ["chown", "-hR", _me(), _HANDED_OVER])


@dataclass(frozen=True, slots=True)
class Before:
    """A folder of the user's own before a run: when, and which of its files (inodes) were root's then."""

    folder: Path
    at: float
    roots: frozenset[int]

    @classmethod
    def of(cls, folder: Path) -> "Before":
        """As it is now."""
        # A second earlier: the kernel stamps files by a clock that ticks a few milliseconds behind.
        return cls(folder, time.time() - 1.0, frozenset(_inodes_of_root(folder)))


def hand_over_new(client: DockerClient, image: str, before: Before) -> None:
    """Makes what a run's containers wrote as root into a folder of the user's own the user's, and nothing else."""
    if os.getuid() == 0 or _inodes_of_root(before.folder) <= before.roots:
        return
    others = [word for inode in sorted(before.roots) for word in ("!", "-inum", str(inode))]
    # A link itself is changed (-h), never what it leads to, and find follows none.
    new = ["find", _HANDED_OVER, "-mindepth", "1", "-user", "0", "-newerct", f"@{before.at:.3f}", *others]
    _as_root(client, image, before.folder, [*new, "-exec", "chown", "-h", _me(), "{}", "+"])


def _inodes_of_root(folder: Path) -> set[int]:
    found = set()
    for at, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(at, name))
                if status.st_uid == 0:
                    found.add(status.st_ino)
    return found


def _me() -> str:
    return f"{os.getuid()}:{os.getgid()}"


def _as_root(client: DockerClient, image: str, folder: Path, command: Sequence[str]) -> None:
    run_once(client, image, command, Access([Mount(_HANDED_OVER, str(folder), type="bind")]))


def _record(folder: Path) -> dict[str, str]:
    try:
        found: Any = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
