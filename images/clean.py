"""Removes what the kit made on this engine: containers, networks and images, found by their labels.

What is in use stays and is named: a run whose owner lives, and an image that a container needs. So does what is a
person's own: a container that no run of the kit started, and an image built FROM one of ours, though both inherit our
image's label.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from docker import DockerClient
from docker.models.images import Image

from berth.common import labels, owner
from berth.common.engine import refusal
from berth.common.image_names import repository_name
from berth.images.locks import LOCKS
from berth.images.scratch import remove, stale_folders

REPOSITORIES = tuple(map(repository_name, ("train", "serve", "base")))


@dataclass(frozen=True, slots=True)
class Item:
    """Something of the kit's, on the engine or a folder: what kind, its name, and why it stays (empty: it goes)."""

    kind: Literal["container", "network", "image", "folder"]
    name: str
    kept: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" stays: {self.kept}" if self.kept else "")


def remove_all(client: DockerClient, *, dry_run: bool = False, images: bool = True) -> list[Item]:
    """Removes, or with `dry_run` only lists, what the kit made; `images` False leaves the images.

    Containers go first, then networks, then images, for each needs the ones before it gone.
    """
    containers = list(_containers(client, dry_run=dry_run))
    networks = list(_networks(client, dry_run=dry_run))
    going = {item.name for item in containers if not item.kept}
    return [*containers, *networks, *(_images(client, going, dry_run=dry_run) if images else ())]


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


def is_ours(tag: str) -> bool:
    """Whether an image's name is one that the kit gives, in whatever registry."""
    repository = tag.rpartition(":")[0] or tag
    return repository.rpartition("/")[2] in REPOSITORIES


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


def _images(client: DockerClient, going: set[str], *, dry_run: bool) -> Iterator[Item]:
    found = client.images.list(filters={"label": labels.KIT})
    layers = {str(image.id): _layers(image) for image in found}
    named: dict[tuple[str, str], int] = {}
    for image in found:
        if any(map(is_ours, image.tags)):
            named[_origin(image)] = min(layers[str(image.id)], named.get(_origin(image), sys.maxsize))
    for image in found:
        names = list(filter(is_ours, image.tags)) or [image.tags[0] if image.tags else str(image.id)]
        why_all = image_stays(image.tags, layers[str(image.id)], named.get(_origin(image)))
        users = client.containers.list(all=True, filters={"ancestor": str(image.id)}, ignore_removed=True)
        needed = sorted(str(each.name) for each in users if each.name not in going)
        for name in names:
            why = why_all or (f"the container {needed[0]} needs it" if needed else "")
            if not why and not dry_run:
                why = refusal(partial(client.images.remove, name))
            yield Item("image", name, why)


def image_stays(tags: Sequence[str], layers: int, named: int | None) -> str:
    """Why an image with one of our labels, these names and so many layers may be a person's own; empty if it is ours.

    named: how many layers ours has that still has its name, None if there is none. A rebuild leaves an image of ours
    without a name, and with as many layers as its successor has; one built FROM it has more.
    """
    if any(map(is_ours, tags)):
        return ""
    if tags:
        return "it is your own, built FROM the kit's; `docker rmi` removes it"
    if named is None:
        return "nothing here tells whether it is your own, built FROM the kit's; `docker rmi` removes it"
    return "it is your own, built FROM the kit's; `docker rmi` removes it" if layers > named else ""


def _origin(image: Image) -> tuple[str, str]:
    """Which of the kit's images it is, or stands on: train, serve or base, and the profile."""
    return str(image.labels.get(labels.KIT)), str(image.labels.get(labels.PROFILE))


def _layers(image: Image) -> int:
    return len(image.attrs["RootFS"].get("Layers") or [])
