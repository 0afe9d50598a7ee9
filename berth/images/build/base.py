"""The image that a build starts from: the pinned one or one that was asked for, on the engine or pulled.

No other image takes its place on its own. `make_base` makes one of Debian's package archive, for networks without an
image registry; a build uses it if --base-image or the variable BERTH_BASE_IMAGE names it.
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
from berth.images.pins import pins
from berth.images.network.build_network import gather
from berth.images.pins.pins import Pins
from berth.images.build.plan import Base
from berth.images.scratch import SECRETS, scratch_folder

VARIABLE = "BERTH_BASE_IMAGE"
"""Names the base where no --base-image does."""
PULL_SILENCE_S = 60
"""A pull without a word for this long means that the registry can't be reached."""
_ANSWER_S = 10
"""Within which a registry says whether it has an image."""


def name_problems(requested: str | None) -> list[str]:
    """What is wrong with the name of a base of the user's own, before an engine is asked."""
    if not requested or is_reference(requested):
        return []
    return [
        f"--base-image {requested[:300]!r} is no name of an image: write [HOST/]NAME[:TAG] or [HOST/]NAME@sha256:…, "
        "such as debian:bookworm-slim."
    ]


def local_base(client: docker.DockerClient, kit: Pins, requested: str | None) -> Base | None:
    """The base that is on the engine already: the requested one, or without a request the pinned one."""
    reference = requested or kit.base_image
    try:
        return described(client.images.get(reference), reference)
    except ImageNotFound:
        return None
    except APIError as error:
        if error.is_server_error():
            raise
        raise UserError(f"{reference!r} can't be the base: {error.explanation or error}.") from None


def base_at_hand(kit: Pins, requested: str | None) -> Base | None:
    """The base that the engine has already; None without one, or without an engine."""
    try:
        return local_base(engine.connect(), kit, requested)
    except UserError:
        return None


def find_base(client: docker.DockerClient, kit: Pins, requested: str | None, say: Callable[[str], None]) -> Base:
    """The base on the engine, else pulled; UserError, with the ways out, if it can't be."""
    reference = requested or kit.base_image
    found = local_base(client, kit, reference)
    if found is None:
        say(f"base: pulling {reference}")
        if refusal := _pull(reference):
            raise UserError(
                f"the base image {reference} is not on the engine and can't be pulled ({refusal}): run "
                f"`python build.py base`, which makes {kit.imported_base} of Debian's package archive, and build with "
                f"--base-image {kit.imported_base}; or name another image with --base-image; or see that the engine "
                "reaches the registry."
            )
        found = local_base(client, kit, reference)
    if found is None:
        raise UserError(f"the engine does not show the base image {reference}: run `build` again.")
    if reference != kit.base_image:
        say(f"base: {reference}, {found.digest}, instead of the pinned {kit.base_image.partition('@')[0]}")
    return found


def base_for_builds(client: docker.DockerClient, kit: Pins, say: Callable[[str], None]) -> str:
    """What builds on this network can start from: the pinned base, if the engine has it or its registry answers; else
    the one of Debian's package archive, made if it is missing.
    """
    if local_base(client, kit, None) is not None:
        return kit.base_image
    try:
        engine.connect(timeout_s=_ANSWER_S).images.get_registry_data(kit.base_image)
        return kit.base_image
    except RAISED as error:
        say(f"base: the registry does not give {kit.base_image} ({_reason(error)}); using {kit.imported_base} instead")
    return (local_base(client, kit, kit.imported_base) or make_base(client, kit)).reference


def make_base(client: docker.DockerClient, kit: Pins) -> Base:
    """Makes `imported_base` of Debian's package archive, or this network's mirror of it."""
    with scratch_folder(SECRETS, pins.CACHE) as folder:
        sources = gather(os.environ).write_secrets(folder).get("apt-sources")
        command = ["sh", str(pins.ROOT / "docker" / "base.sh"), kit.imported_base, *([str(sources)] if sources else [])]
        environment = {**os.environ, "DOCKER": str(engine.find_client())}
        if subprocess.run(command, env=environment, stdout=subprocess.DEVNULL).returncode != 0:
            raise UserError(
                "no base image could be made: see above what docker/base.sh says, or give `build` a Debian or Ubuntu "
                "image that the engine has, with --base-image."
            )
    made = local_base(client, kit, kit.imported_base)
    if made is None:
        raise UserError(f"the engine does not show {kit.imported_base}, which was just made: run the command again.")
    return made


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


def _pull(reference: str) -> str:
    """Pulls an image; the reason, in a few words, if that fails, else an empty text."""
    try:
        for message in engine.pull(reference, PULL_SILENCE_S):
            if "error" in message:
                return in_few_words(str(message["error"]))
    except RAISED as error:
        return _reason(error)
    return ""


def _reason(error: Exception) -> str:
    """Why the engine gave no image, in a few words."""
    silent = isinstance(error, RequestException | HTTPError) and not isinstance(error, APIError)
    return f"no answer: {words(error)}" if silent else words(error)
