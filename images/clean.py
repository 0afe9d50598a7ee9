"""Removes what the kit made on this engine: containers, networks and images, found by their labels.

What is in use stays and is named: a run whose owner lives, and an image that a container needs. An image that somebody
built FROM one of ours inherits its label; only names of ours, and images without a name, are removed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from docker import DockerClient
from docker.errors import APIError, NotFound

from berth.images import labels, owner

REPOSITORIES = ("berth-train", "berth-serve", "berth-base")


@dataclass(frozen=True, slots=True)
class Item:
    """Something of the kit's on the engine: what kind, its name, and why it stays (empty: it goes)."""

    kind: Literal["container", "network", "image"]
    name: str
    kept: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" stays: {self.kept}" if self.kept else "")


def clean(client: DockerClient, *, dry_run: bool = False, images: bool = True) -> list[Item]:
    """Removes, or with `dry_run` only lists, what the kit made; `images` False leaves the images.

    Containers go first, then networks, then images, for each needs the ones before it gone.
    """
    containers = list(_containers(client, dry_run))
    networks = list(_networks(client, dry_run))
    going = {item.name for item in containers if not item.kept}
    return [*containers, *networks, *(_images(client, dry_run, going) if images else ())]


def container_stays(found: Mapping[str, str], image: str, status: str) -> str:
    """Why a container with these labels, of `image` and of this status, stays; empty if it goes.

    One that carries no run was not started by the kit: it has its image's label only. It is a person's while it runs,
    and always if the image is his own, built FROM one of ours.
    """
    if labels.RUN in found:
        return run_stays(found)
    if not is_ours(image):
        return f"it is of your own image {image}; `docker rm` removes it"
    return "it runs, and no run of the kit started it" if status in ("running", "paused", "restarting") else ""


def run_stays(found: Mapping[str, str]) -> str:
    """Why something with a run's labels stays: its owner lives, or can't be seen from here."""
    whose = owner.from_labels(found)
    return "" if whose is None or owner.is_gone(whose) else f"its run goes on, in process {whose.pid}"


def is_ours(tag: str) -> bool:
    """Whether an image's name is one that the kit gives, in whatever registry."""
    repository = tag.rpartition(":")[0] or tag
    return repository.rpartition("/")[2] in REPOSITORIES


def _containers(client: DockerClient, dry_run: bool) -> Iterator[Item]:
    for container in client.containers.list(all=True, filters={"label": labels.KIT}, ignore_removed=True):
        why = container_stays(container.labels, container.attrs["Config"]["Image"], container.status)
        if not why and not dry_run:
            why = _refusal(partial(container.remove, force=True, v=True))
        yield Item("container", str(container.name), why)


def _networks(client: DockerClient, dry_run: bool) -> Iterator[Item]:
    for network in client.networks.list(filters={"label": labels.KIT}):
        why = run_stays(network.attrs.get("Labels") or {})
        if not why and not dry_run:
            why = _refusal(network.remove)
        yield Item("network", str(network.name), why)


def _images(client: DockerClient, dry_run: bool, going: set[str]) -> Iterator[Item]:
    for image in client.images.list(filters={"label": labels.KIT}):
        names = [tag for tag in image.tags if is_ours(tag)] if image.tags else [str(image.id)]
        if not names:
            continue
        users = client.containers.list(all=True, filters={"ancestor": str(image.id)}, ignore_removed=True)
        needed = sorted(str(each.name) for each in users if each.name not in going)
        for name in names:
            why = f"the container {needed[0]} needs it" if needed else ""
            if not why and not dry_run:
                why = _refusal(partial(client.images.remove, name))
            yield Item("image", name, why)


def _refusal(remove: Callable[[], object]) -> str:
    """Removes; why the engine would not, empty if the thing is gone."""
    try:
        remove()
    except NotFound:
        return ""
    except APIError as error:
        return str(error.explanation or error)
    return ""
