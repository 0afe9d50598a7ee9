"""The image that a build starts from: the pinned one, one of the user's, or one made of Debian's package archive."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import docker
import requests
from docker.errors import APIError, ImageNotFound
from docker.models.images import Image

from berth.images.errors import UserError
from berth.images.pins import ROOT, Pins
from berth.images.plan import Base

PULL_SILENCE_S = 30
"""A pull without a word for this long means that the registry can't be reached."""


def local_base(client: docker.DockerClient, pins: Pins, requested: str | None) -> Base | None:
    """The base that is on the engine already: the requested one, the pinned one, or the imported one."""
    for reference in [requested] if requested else [pins.base_image, pins.imported_base]:
        try:
            return described(client.images.get(reference), reference)
        except ImageNotFound:
            continue
    return None


def find_base(
    client: docker.DockerClient,
    docker_command: Path,
    pins: Pins,
    requested: str | None,
    mirror: str | None,
    say: Callable[[str], None],
) -> Base:
    """The base on the engine, else pulled, else, for the pinned one, made by docker/base.sh; UserError if all fails."""
    found = local_base(client, pins, requested)
    if found is None:
        reference = requested or pins.base_image
        say(f"base: pulling {reference}")
        refusal = _pull(reference)
        if refusal is None:
            found = local_base(client, pins, reference)
        elif requested:
            raise UserError(f"the base image {requested} is not on the engine and can't be pulled: {refusal}.")
        else:
            say(f"base: not pulled ({refusal}); making {pins.imported_base} of Debian's package archive instead")
            _make(docker_command, pins.imported_base, mirror)
            found = local_base(client, pins, pins.imported_base)
    if found is None:
        raise UserError(f"the engine does not show the base image {requested or pins.base_image}: run `build` again.")
    return found


def described(image: Image, reference: str) -> Base:
    """The base with the digest it was pulled by, or the image id of one that was imported; refuses another platform."""
    platform = f"{image.attrs['Os']}/{image.attrs['Architecture']}"
    if platform != "linux/amd64":
        raise UserError(
            f"the base image {reference} is for {platform}, and SageMaker runs linux/amd64: "
            f"pull that one with `docker pull --platform linux/amd64 {reference}`."
        )
    digests: list[str] = image.attrs.get("RepoDigests") or []
    return Base(reference, digests[0].partition("@")[2] if digests else str(image.id))


def _pull(reference: str) -> str | None:
    """Pulls an image; the reason, in a few words, where that fails."""
    name, _, digest = reference.partition("@")
    repository, _, tag = name.rpartition(":") if ":" in name.rsplit("/", 1)[-1] else (name, "", "latest")
    try:
        patient = docker.from_env(timeout=PULL_SILENCE_S)
        for message in patient.api.pull(
            repository, tag=digest or tag, platform="linux/amd64", stream=True, decode=True
        ):
            if "error" in message:
                return str(message["error"]).rstrip(".")
    except APIError as error:
        return str(error.explanation or error).rstrip(".")
    except (requests.exceptions.ConnectionError, requests.exceptions.ReadTimeout):
        return f"the registry said nothing for {PULL_SILENCE_S} s"
    return None


def _make(docker_command: Path, tag: str, mirror: str | None) -> None:
    command = [str(ROOT / "docker" / "base.sh"), tag, *([mirror] if mirror else [])]
    done = subprocess.run(command, env={**os.environ, "DOCKER": str(docker_command)}, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise UserError(
            "no base image could be had: look above for what docker/base.sh says, or give --base-image a Debian or "
            "Ubuntu image that the engine has."
        )
