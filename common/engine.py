"""The Docker engine and the client that drives its BuildKit.

Everything but a build goes through the Docker SDK (`connect`). The SDK can't drive BuildKit, so a build runs Docker's
command line (`find_client`).
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NullResource
from docker.models.images import Image

from berth.common.errors import UserError
from berth.common.image_names import parse
from berth.common.subprocesses import ask

NO_ENGINE = (
    "no Docker engine answers{where}: run `docker/engine.sh`, which starts one or says what to install, "
    "or point DOCKER_HOST at yours."
)
# BuildKit is off by default up to Docker 22. A newer client's buildx adds an attestation, which makes an OCI index of
# the image, and SageMaker refuses that; an older client has no option to leave it out, but each takes the variable.
BUILDKIT = {"DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


def connect(timeout_s: int = 120) -> docker.DockerClient:
    """A connection to the engine; UserError where none answers."""
    try:
        client = docker.from_env(timeout=timeout_s)
        client.ping()
    except (DockerException, OSError) as error:
        host = os.environ.get("DOCKER_HOST")
        where = f" at DOCKER_HOST={host}" if host else ""
        if isinstance(error.__context__, PermissionError) or "Permission denied" in str(error):
            raise UserError(
                "this user may not talk to the Docker engine: join its group with `sudo usermod -aG docker $USER`, "
                "then log in again."
            ) from error
        raise UserError(NO_ENGINE.format(where=where)) from error
    except (ValueError, TypeError, AttributeError) as error:  # out of Docker's own settings, which the SDK reads first
        raise UserError(
            "Docker's settings can't be read: fix config.json in DOCKER_CONFIG or ~/.docker, or move it away."
        ) from error
    return client


def refusal(call: Callable[[], object], foreseen: Collection[int] = (404,)) -> str:
    """Why the engine would not do it; empty if it did, or answered with a status of `foreseen` (404: it is gone)."""
    try:
        call()
    except APIError as error:
        if error.status_code not in foreseen:
            return str(error.explanation or error)
    return ""


def find_image(client: docker.DockerClient, image: str, profiles: Collection[str] = ()) -> Image:
    """An image of the engine by its name, tag or id; UserError where there is none.

    profiles: those that can be built: of a missing image of one of them the error says the command that builds it.
    """
    try:
        return client.images.get(image)
    except ImageNotFound:
        raise UserError(_absence(image, profiles)) from None
    except (APIError, NullResource):
        raise UserError(f"{image!r} is no image: give the name, the tag or the id of one that is here.") from None


def _absence(image: str, profiles: Collection[str]) -> str:
    kit, tag = parse(image) or ("", "")
    if tag not in profiles:
        return f"there is no image {image} here: give one that `docker images` lists."
    return f"there is no image {image} here: build it with `python build.py build {kit} --profile {tag}`."


def drives_buildkit(version: str, has_buildx: Callable[[], object]) -> bool:
    """Whether a Docker client of this version builds with BuildKit: built in up to 22, a plugin since 23.

    has_buildx: asked only where it decides.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if not found:
        return False
    major, minor = int(found[1]), int(found[2])
    return (18, 9) <= (major, minor) < (23, 0) or bool(has_buildx())


def find_client(search: str | None = None) -> Path:
    """The first `docker` on the search path, PATH by default, that drives BuildKit; UserError where there is none.

    A newer client without its buildx plugin silently falls back to the old builder, which knows no secrets.
    """
    seen: list[str] = []
    for folder in (search if search is not None else os.environ.get("PATH", "")).split(os.pathsep):
        found = shutil.which("docker", path=folder)
        if found is None:
            continue
        # `docker version` would ask the engine as well, and wait for one that is mute.
        version = ask([found, "--version"]).removeprefix("Docker version ").partition(",")[0]
        if version and drives_buildkit(version, partial(ask, [found, "buildx", "version"])):
            return Path(found)
        seen.append(f"{found} ({version or 'no version'})")
    if seen:
        raise UserError(
            f"no Docker client here drives BuildKit, found {', '.join(seen)}: install its plugin with "
            "`apt-get install docker-buildx`, or on Debian 12 the client of `apt-get install docker.io`."
        )
    raise UserError("there is no `docker` command on PATH: install Docker's client with `apt-get install docker.io`.")


def client_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a build: BuildKit on, and no default platform or builder of the caller's in its way."""
    dropped = ("DOCKER_DEFAULT_PLATFORM", "BUILDX_BUILDER")
    return {**{key: value for key, value in environ.items() if key not in dropped}, **BUILDKIT}


def become_shell(image: str) -> NoReturn:
    """Turns this process into a shell in a container of `image`, which goes when the shell ends."""
    client = str(find_client())
    terminal = ["--interactive", *(["--tty"] if sys.stdin.isatty() else [])]
    os.execv(client, [client, "run", "--rm", *terminal, "--entrypoint", "bash", image])
