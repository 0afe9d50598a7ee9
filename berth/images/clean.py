"""Removes what the kit made on this engine: containers, networks and images, found by their labels.

What is in use stays and is named: a run whose owner lives, and an image that a container needs. So does what is a
person's own: a container that no run of the kit started, and an image built FROM one of ours, though both inherit our
image's label. Images of other checkouts, which share the engine, go only if the person agrees.
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
from berth.images.selection import is_kit_name

_OWN = "it is your own, built FROM the kit's; `docker rmi` removes it"
_OTHERS = "another checkout built it; `clean` asks for it on a terminal, and `clean --yes` removes it"


@dataclass(frozen=True, slots=True)
class Item:
    """Something of the kit's, on the engine or a folder: what kind, its name, and why it stays (empty: it goes)."""

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
    """Removes, or with `dry_run` only lists, what the kit made; `images` False leaves the images.

    Containers go first, then networks, then images, for each needs the ones before it gone. take_others: called with
    the images of other checkouts, if there are any: whether they go as well.
    """
    containers = list(_containers(client, dry_run=dry_run))
    networks = list(_networks(client, dry_run=dry_run))
    if not images:
        return [*containers, *networks]
    going = {item.name for item in containers if not item.kept}
    found, others = _images(client, going)
    if not others or take_others(others):
        others = []
    for number, item in enumerate(found):
        why = item.kept or (_OTHERS if item.name in others else "")
        if not why and not dry_run:
            why = refusal(partial(client.images.remove, item.name))
        found[number] = Item("image", item.name, why)
    return [*containers, *networks, *found]


def remove_folders(*, dry_run: bool = False) -> list[Item]:
    """Removes, or only lists, what a killed `profile add` or `pins` left: environments of proofs, half-made locks."""
    found = stale_folders(LOCKS)
    for folder in found if not dry_run else ():
        remove(folder)
    return [Item("folder", str(folder), "" if dry_run or not folder.exists() else "see above") for folder in found]


def container_stays(found: Mapping[str, str]) -> str:
    """Why a container with these labels stays; empty if it goes.

    One that carries no run was not started by the kit: it has its image's label only, and may hold a person's work.
    """
    return run_stays(found) if labels.RUN in found else "no run of the kit started it; `docker rm` removes it"


def run_stays(found: Mapping[str, str]) -> str:
    """Why something with a run's labels stays: its owner lives, or can't be seen from here."""
    whose = owner.from_labels(found)
    return "" if whose is None or owner.is_gone(whose) else f"its run goes on, in process {whose.pid}"


def is_of_checkout(built_from: str, root: Path) -> bool:
    """Whether an image of this revision was built from the checkout in `root`: from its commit or one before it.

    One of which nobody can tell, such as a plain `docker build`'s, was not.
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
        why = container_stays(container.labels)
        if not why and not dry_run:
            why = refusal(partial(container.remove, force=True, v=True))
        yield Item("container", str(container.name), why)


def _networks(client: DockerClient, *, dry_run: bool) -> Iterator[Item]:
    for network in client.networks.list(filters={"label": labels.KIT}):
        why = run_stays(network.attrs.get("Labels") or {})
        if not why and not dry_run:
            why = refusal(network.remove)
        yield Item("network", str(network.name), why)


def _images(client: DockerClient, going: set[str]) -> tuple[list[Item], list[str]]:
    """The images, each by each name of the kit's, and those names that other checkouts built and nothing else keeps."""
    found = client.images.list(filters={"label": labels.KIT})
    named: dict[tuple[str, str], int] = {}
    for image in found:
        if _kit_names(image):
            named[_origin(image)] = min(_layers(image), named.get(_origin(image), sys.maxsize))
    items, others = [], []
    ours: dict[str, bool] = {}
    for image in found:
        names = _kit_names(image) or [image.tags[0] if image.tags else str(image.id)]
        why = image_stays(image.tags, image.labels, _layers(image), named.get(_origin(image)))
        users = client.containers.list(all=True, filters={"ancestor": str(image.id)}, ignore_removed=True)
        if needed := sorted(str(each.name) for each in users if each.name not in going):
            why = why or f"the container {needed[0]} needs it"
        items += [Item("image", name, why) for name in names]
        built_from = labels.revision(image.labels)
        if not why and not ours.setdefault(built_from, is_of_checkout(built_from, pins.ROOT)):
            others += names
    return items, others


def image_stays(tags: Sequence[str], found: Mapping[str, str], layers: int, named: int | None) -> str:
    """Why an image with these names, labels and so many layers may be a person's own; empty if it is ours.

    named: how many layers ours has that still has its name, None if there is none. A rebuild leaves an image of ours
    without a name, and with as many layers as its successor has; one built FROM it has more.
    """
    if any(is_kit_name(tag, found) for tag in tags):
        return ""
    if tags:
        return _OWN
    if named is None:
        return "nothing here tells whether it is your own, built FROM the kit's; `docker rmi` removes it"
    return _OWN if layers > named else ""


def _kit_names(image: Image) -> list[str]:
    return [tag for tag in image.tags if is_kit_name(tag, image.labels)]


def _origin(image: Image) -> tuple[str, str]:
    """Which of the kit's images it is, or stands on: train, serve or base, and the profile."""
    return str(image.labels.get(labels.KIT)), str(image.labels.get(labels.PROFILE))


def _layers(image: Image) -> int:
    return len(image.attrs["RootFS"].get("Layers") or [])
