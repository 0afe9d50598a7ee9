"""Removes what berth made on this engine: containers, networks and images, found by their labels.

It keeps and reports what is in use: runs whose owner is alive, and images that a container needs. It also keeps what
belongs to users: containers that no run started, and images built FROM berth's; both inherit the label. Images of
commits that are not in this checkout's history are removed only if the user agrees.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from docker import DockerClient
from docker.models.images import Image

from berth.common import labels, owner
from berth.common.engine import refusal
from berth.images.locks.locks import LOCKS
from berth.images.pins import pins
from berth.images.scratch import remove, stale_folders
from berth.images.selection import is_build_name

_OWN = "it is your own, built FROM berth's; `docker rmi` removes it"
_OTHERS = "its commit is not in this checkout's history; `clean` asks on a terminal, `clean --yes` removes it"


@dataclass(frozen=True, slots=True)
class Item:
    """A thing that berth made: its kind, its name, and why it is kept (empty: it is removed)."""

    kind: Literal["container", "network", "image", "folder"]
    name: str
    kept: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" stays: {self.kept}" if self.kept else "")


def remove_all(
    client: DockerClient,
    *,
    dry_run: bool = False,
    images: bool = True,
    take_others: Callable[[Sequence[str]], bool] = lambda names: False,
) -> list[Item]:
    """Removes what berth made on the engine, or with `dry_run` only lists it; `images` False keeps the images.

    Containers are removed first, then networks, then images, because each is in use by the ones before it. take_others:
    called with the names of images of other commits, if there are any; returns whether to remove them.
    """
    containers = list(_containers(client, dry_run=dry_run))
    networks = list(_networks(client, dry_run=dry_run))
    if not images:
        return [*containers, *networks]
    removed_containers = {item.name for item in containers if not item.kept}
    items, others = _images(client, removed_containers)
    if not others or take_others(others):
        others = []
    for number, item in enumerate(items):
        why = item.kept or (_OTHERS if item.name in others else "")
        if not why and not dry_run:
            why = refusal(partial(client.images.remove, item.name))
        items[number] = Item("image", item.name, why)
    return [*containers, *networks, *items]


def remove_folders(*, dry_run: bool = False) -> list[Item]:
    """Removes, or only lists, folders that killed commands left: environments of proofs, unfinished locks, secrets."""
    found = stale_folders(LOCKS)
    for folder in found if not dry_run else ():
        remove(folder)
    return [Item("folder", str(folder), "" if dry_run or not folder.exists() else "see above") for folder in found]


def why_container_stays(container_labels: Mapping[str, str]) -> str:
    """Why a container with these labels is kept; empty if it is removed.

    One without a run's label was not started by berth: it only inherited its image's label, and may hold a user's work.
    """
    return (
        why_run_stays(container_labels)
        if labels.RUN in container_labels
        else "no run of berth started it; `docker rm` removes it"
    )


def why_run_stays(item_labels: Mapping[str, str]) -> str:
    """Why something with a run's labels is kept: its owner is alive, or not visible from here."""
    run_owner = owner.from_labels(item_labels)
    return (
        "" if run_owner is None or owner.is_gone(run_owner) else f"its run is still going, in process {run_owner.pid}"
    )


def is_of_checkout(built_from: str, root: Path) -> bool:
    """Whether an image of this revision was built from the checkout in `root`: from its commit or an ancestor.

    False if that is unknown, as for a plain `docker build`.
    """
    commit = built_from.removesuffix("-dirty")
    if not re.fullmatch(r"[0-9a-f]{7,40}", commit):
        return False
    command = ["git", "-C", str(root), "merge-base", "--is-ancestor", commit, "HEAD"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:  # no git here
        return False


def _containers(client: DockerClient, *, dry_run: bool) -> Iterator[Item]:
    for container in client.containers.list(all=True, filters={"label": labels.KIT}, ignore_removed=True):
        why = why_container_stays(container.labels)
        if not why and not dry_run:
            why = refusal(partial(container.remove, force=True, v=True))
        yield Item("container", str(container.name), why)


def _networks(client: DockerClient, *, dry_run: bool) -> Iterator[Item]:
    for network in client.networks.list(filters={"label": labels.KIT}):
        why = why_run_stays(network.attrs.get("Labels") or {})
        if not why and not dry_run:
            why = refusal(network.remove)
        yield Item("network", str(network.name), why)


def _images(client: DockerClient, removed_containers: set[str]) -> tuple[list[Item], list[str]]:
    """An item per name of berth's images, and the removable names of images of other commits."""
    images = client.images.list(filters={"label": labels.KIT})
    named_layers: dict[tuple[str, str], int] = {}
    for image in images:
        if _build_names(image):
            named_layers[_origin(image)] = min(_layers(image), named_layers.get(_origin(image), sys.maxsize))
    items, others = [], []
    ours: dict[str, bool] = {}
    for image in images:
        names = _build_names(image) or [image.tags[0] if image.tags else str(image.id)]
        why = why_image_stays(image.tags, image.labels, _layers(image), named_layers.get(_origin(image)))
        users = client.containers.list(all=True, filters={"ancestor": str(image.id)}, ignore_removed=True)
        if needed := sorted(str(each.name) for each in users if each.name not in removed_containers):
            why = why or f"the container {needed[0]} needs it"
        items += [Item("image", name, why) for name in names]
        built_from = labels.revision(image.labels)
        if not why and not ours.setdefault(built_from, is_of_checkout(built_from, pins.ROOT)):
            others += names
    return items, others


def why_image_stays(tags: Sequence[str], image_labels: Mapping[str, str], layers: int, named_layers: int | None) -> str:
    """Why an image with these names, labels and so many layers is kept as a user's own; empty if it is berth's.

    named_layers: number of layers of berth's image that still has its name; None if there is none. A rebuild leaves
    berth's old image without a name but with as many layers as its successor; an image built FROM it has more.
    """
    if any(is_build_name(tag, image_labels) for tag in tags):
        return ""
    if tags:
        return _OWN
    if named_layers is None:
        return "it may be your own, built FROM berth's; `docker rmi` removes it"
    return _OWN if layers > named_layers else ""


def _build_names(image: Image) -> list[str]:
    return [tag for tag in image.tags if is_build_name(tag, image.labels)]


def _origin(image: Image) -> tuple[str, str]:
    """Which of berth's images it is, or was built FROM: train, serve or base, and the profile."""
    return str(image.labels.get(labels.KIT)), str(image.labels.get(labels.PROFILE))


def _layers(image: Image) -> int:
    return len(image.attrs["RootFS"].get("Layers") or [])
