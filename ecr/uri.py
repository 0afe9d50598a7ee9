"""What a program passes as `image_uri`: for now the name and the id of an image on this machine's engine."""

from dataclasses import asdict, dataclass
from typing import Any

import docker
from docker.errors import ImageNotFound

from berth.images import labels
from berth.images.errors import UserError


@dataclass(frozen=True)
class LocalImage:
    """An image on the engine: the tag that moves, the one that stays, and its id, which is the config's digest.

    `doubles` are parts of it that a test's double stands in for: with any, nothing may publish it.
    """

    image: str
    tag: str
    exact_tag: str
    digest: str
    doubles: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def local_image(client: docker.DockerClient, image: str, profile: str) -> LocalImage:
    """The image built last for a profile; UserError says how to build it."""
    tag = f"berth-{image}:{profile}"
    try:
        found = client.images.get(tag)
    except ImageNotFound:
        raise UserError(f"{tag} is not built: run `python build.py build {image} --profile {profile}`.") from None
    exact = sorted(name for name in found.tags if name != tag and name.startswith(f"berth-{image}:"))
    doubles = tuple(labels.doubles(found.labels))
    return LocalImage(image, tag, exact[-1] if exact else tag, str(found.id), doubles)
