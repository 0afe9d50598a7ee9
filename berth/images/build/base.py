"""The image that a build starts from: the pinned base or a requested one, on the engine or pulled.

There is no automatic fallback. `make_base` makes a base from Debian's package archive, for networks without an image
registry; a build uses it only if --base-image or BERTH_BASE_IMAGE names it.
"""

import os
import subprocess
from collections.abc import Callable

import docker
from docker.errors import APIError, ImageNotFound
from docker.models.images import Image
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from berth.common import engine
from berth.common.engine_errors import RAISED, words
from berth.common.errors import UserError
from berth.common.http import in_few_words
from berth.common.image_names import is_reference
from berth.images.build.plan import Base
from berth.images.network.build_network import gather
from berth.images.pins import pins
from berth.images.pins.pins import Pins
from berth.images.scratch import SECRETS, scratch_folder

VARIABLE = "BERTH_BASE_IMAGE"
"""The environment variable that names the base if --base-image does not."""
PULL_SILENCE_S = 60
"""Seconds without output after which a pull fails because the registry is unreachable."""
_ANSWER_S = 10
"""Seconds in which a registry must say whether it has an image."""


def name_problems(requested: str | None) -> list[str]:
    """Errors in the name of a requested base. Needs no engine."""
    if not requested or is_reference(requested):
        return []
    return [
        f"--base-image {requested[:300]!r} is not an image name: write [HOST/]NAME[:TAG] or [HOST/]NAME@sha256:…, "
        "such as debian:bookworm-slim."
    ]


def local_base(client: docker.DockerClient, all_pins: Pins, requested: str | None) -> Base | None:
    """The base on the engine, requested or pinned; None if the engine does not have it."""
    reference = requested or all_pins.base_image
    try:
        return described(client.images.get(reference), reference)
    except ImageNotFound:
        return None
    except APIError as error:
        if error.is_server_error():
            raise
        raise UserError(f"{reference!r} can't be the base: {error.explanation or error}.") from None


def find_base(client: docker.DockerClient, all_pins: Pins, requested: str | None, say: Callable[[str], None]) -> Base:
    """The base, pulled if the engine does not have it. UserError says what to do if that fails."""
    reference = requested or all_pins.base_image
    found = local_base(client, all_pins, reference)
    if found is None:
        say(f"base: pulling {reference}")
        if refusal := _pull(reference):
            raise UserError(
                f"the base image {reference} is not on the engine and can't be pulled ({refusal}): run "
                f"`python build.py base`, which makes {all_pins.imported_base} from Debian's package archive, and "
                f"build with --base-image {all_pins.imported_base}; or name another image with --base-image; or check "
                "that the engine reaches the registry."
            )
        found = described(client.images.get(reference), reference)
    if reference != all_pins.base_image:
        say(f"base: {reference}, {found.digest}, instead of the pinned {all_pins.base_image.partition('@')[0]}")
    return found


def base_for_builds(client: docker.DockerClient, all_pins: Pins, say: Callable[[str], None]) -> str:
    """The name of a base for builds on this network: the pinned one if the engine or its registry has it, else one made
    from Debian's package archive.
    """
    if local_base(client, all_pins, None) is not None:
        return all_pins.base_image
    try:
        engine.connect(timeout_s=_ANSWER_S).images.get_registry_data(all_pins.base_image)
        return all_pins.base_image
    except RAISED as error:
        say(
            f"base: {all_pins.base_image} is not available from its registry ({_reason(error)}); using "
            f"{all_pins.imported_base} instead"
        )
    return (local_base(client, all_pins, all_pins.imported_base) or make_base(client, all_pins)).reference


def make_base(client: docker.DockerClient, all_pins: Pins) -> Base:
    """Makes `imported_base` from Debian's package archive, or this network's mirror of it."""
    with scratch_folder(SECRETS, pins.CACHE) as folder:
        sources = gather(os.environ).write_secrets(folder).get("apt-sources")
        command = [
            "sh",
            str(pins.ROOT / "docker" / "base.sh"),
            all_pins.imported_base,
            *([str(sources)] if sources else []),
        ]
        environment = {**os.environ, "DOCKER": str(engine.find_client())}
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode != 0:
            raise UserError(
                "the base image could not be made: see the error of docker/base.sh above, or use a Debian or Ubuntu "
                "image that the engine has, with --base-image."
            )
    return described(client.images.get(all_pins.imported_base), all_pins.imported_base)


def described(image: Image, reference: str) -> Base:
    """The base with the digest it was pulled by, or its image id if imported; UserError for another platform."""
    platform = f"{image.attrs['Os']}/{image.attrs['Architecture']}"
    if platform != "linux/amd64":
        raise UserError(
            f"the base image {reference} is for {platform}, but SageMaker runs linux/amd64: "
            f"pull that one with `docker pull --platform linux/amd64 {reference}`."
        )
    digests: list[str] = image.attrs.get("RepoDigests") or []
    return Base(reference, digests[0].partition("@")[2] if digests else str(image.id))


def _pull(reference: str) -> str:
    """Pulls an image; returns the reason in a few words if that fails, else an empty text."""
    try:
        for message in engine.pull(reference, PULL_SILENCE_S):
            if "error" in message:
                return in_few_words(str(message["error"]))
    except RAISED as error:
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    """Why the engine could not get the image, in a few words."""
    silent = isinstance(error, RequestException | HTTPError) and not isinstance(error, APIError)
    return f"no answer: {words(error)}" if silent else words(error)
