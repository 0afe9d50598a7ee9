"""The image that a build starts from: the pinned one, one of the user's, or one made of Debian's package archive."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound
from docker.models.images import Image
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from berth.common import engine
from berth.common.errors import UserError
from berth.common.image_names import is_reference
from berth.images.pins import ROOT, Pins
from berth.images.plan import Base

PULL_SILENCE_S = 60
"""A pull without a word for this long means that the registry can't be reached."""


def name_problems(requested: str | None) -> list[str]:
    """What is wrong with the name of a base of the user's own, before an engine is asked."""
    if not requested or is_reference(requested):
        return []
    return [
        f"--base-image {requested[:300]!r} is no name of an image: write [HOST/]NAME[:TAG] or [HOST/]NAME@sha256:…, "
        "such as debian:bookworm-slim."
    ]


def local_base(client: docker.DockerClient, pins: Pins, requested: str | None) -> Base | None:
    """The base that is on the engine already: the requested one, the pinned one, or the imported one."""
    for reference in [requested] if requested else [pins.base_image, pins.imported_base]:
        try:
            return described(client.images.get(reference), reference)
        except ImageNotFound:
            continue
        except APIError as error:
            raise UserError(f"{reference!r} can't be the base: {error.explanation or error}.") from None
    return None


def base_at_hand(pins: Pins, requested: str | None) -> Base | None:
    """The base that the engine has already; None without one, or without an engine."""
    try:
        return local_base(engine.connect(), pins, requested)
    except UserError:
        return None


def find_base(
    client: docker.DockerClient,
    pins: Pins,
    requested: str | None,
    sources: Path | None,
    say: Callable[[str], None],
) -> Base:
    """The base on the engine, else pulled, else, for the pinned one, made by docker/base.sh; UserError if all fails.

    sources: a sources.list of this network's mirror, None for Debian's public archive.
    """
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
            _make(engine.find_client(), pins.imported_base, sources)
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


class _Impatient(docker.APIClient):
    """A client that gives a pull up when nothing comes; the SDK's own waits for ever."""

    def _post(self, url: str, **settings: Any) -> Any:
        return super()._post(url, **{**settings, "timeout": PULL_SILENCE_S})  # type: ignore[misc]  # not in the stubs


def _pull(reference: str) -> str | None:
    """Pulls an image; the reason, in a few words, where that fails."""
    name, _, digest = reference.partition("@")
    repository, _, tag = name.rpartition(":") if ":" in name.rsplit("/", 1)[-1] else (name, "", "latest")
    try:
        client = _Impatient(version="auto", **kwargs_from_env())
        for message in client.pull(repository, tag=digest or tag, platform="linux/amd64", stream=True, decode=True):
            if "error" in message:
                return str(message["error"]).rstrip(".")
    except APIError as error:
        return str(error.explanation or error).rstrip(".")
    except (RequestException, HTTPError):
        return f"the registry sent nothing for {PULL_SILENCE_S} s"
    return None


def _make(docker_command: Path, tag: str, sources: Path | None) -> None:
    command = [str(ROOT / "docker" / "base.sh"), tag, *([str(sources)] if sources else [])]
    done = subprocess.run(command, env={**os.environ, "DOCKER": str(docker_command)}, stdout=subprocess.DEVNULL)
    if done.returncode != 0:
        raise UserError(
            "no base image could be had: look above for what docker/base.sh says, or give --base-image a Debian or "
            "Ubuntu image that the engine has."
        )
