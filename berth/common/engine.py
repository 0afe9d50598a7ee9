"""The Docker engine and the client that drives its BuildKit.

All but builds use the Docker SDK, at the `address` that Docker's own client would use. The SDK can't drive BuildKit, so
a build runs Docker's command line (`find_client`).
"""

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound, NullResource
from docker.models.images import Image
from docker.tls import TLSConfig
from docker.utils import kwargs_from_env

from berth.common.engine_errors import RAISED, words
from berth.common.errors import UserError
from berth.common.image_names import parse
from berth.common.subprocesses import ask

# BuildKit is off by default up to Docker 22. Newer clients' buildx adds an attestation, which turns the image into an
# OCI index, and SageMaker refuses an index. Older clients have no option against it, but all read the variable.
BUILDKIT = {"DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
LOCAL_SOCKET = "unix:///var/run/docker.sock"
_CONTAINERD = ["driver-type", "io.containerd.snapshotter.v1"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the engine is. name: for errors; advice: what to do if none answers; parameters: for the SDK's client."""

    name: str
    advice: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


def connect(timeout_s: int = 120) -> docker.DockerClient:
    """Connects to the engine; UserError if none answers."""
    with _reaching(address(os.environ)) as place:
        client = docker.DockerClient(timeout=timeout_s, **place.parameters)
        client.ping()
    return client


class _PullingClient(docker.APIClient):
    """A client whose time-out also applies to pulls; the SDK's own waits for ever."""

    def _post(self, url: str, **settings: Any) -> Any:
        return super()._post(url, **{**settings, "timeout": self.timeout})  # type: ignore[misc]  # not in the stubs


def pull(reference: str, silence_s: int) -> Iterator[dict[str, Any]]:
    """Lets the engine pull an image for linux/amd64 and yields its messages. silence_s: the longest wait for a message.

    Raises the SDK's errors, and UserError if no engine answers.
    """
    name, _, digest = reference.partition("@")
    repository, _, tag = name.rpartition(":") if ":" in name.rsplit("/", 1)[-1] else (name, "", "latest")
    with _reaching(address(os.environ)) as place:
        client = _PullingClient(version="auto", timeout=silence_s, **place.parameters)
    with readable_settings():
        messages: Iterator[dict[str, Any]] = client.pull(
            repository, tag=digest or tag, platform="linux/amd64", stream=True, decode=True
        )
    return messages


def address(environ: Mapping[str, str]) -> Address:
    """Where the engine is, by the rules of Docker's own client: DOCKER_HOST, then the context of DOCKER_CONTEXT, then
    the context in use. UserError if that context does not exist or can't be read.
    """
    if host := environ.get("DOCKER_HOST"):
        advice = "start it, or unset DOCKER_HOST to use this machine's own"
        return Address(f"DOCKER_HOST={host}", advice, kwargs_from_env(environment=dict(environ)))
    folder = Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    name = environ.get("DOCKER_CONTEXT") or _context_in_use(folder)
    if name != "default":
        return _context(name, folder)
    advice = "run `sh docker/engine.sh`, which starts one or says what to install, or point DOCKER_HOST at yours"
    if others := other_sockets(environ, Path.home()):
        advice = f"this machine has one elsewhere: `export DOCKER_HOST={others[0]}`"
    return Address(LOCAL_SOCKET, advice)


def other_sockets(environ: Mapping[str, str], home: Path) -> list[str]:
    """Existing sockets of engines elsewhere than the default: rootless, Docker Desktop, Colima, OrbStack, Rancher."""
    places = [Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}") / "docker.sock"]
    places += [home / f".docker/{each}/docker.sock" for each in ("run", "desktop")]
    places += [home / each for each in (".colima/default/docker.sock", ".orbstack/run/docker.sock", ".rd/docker.sock")]
    return [f"unix://{place}" for place in places if place.is_socket()]


def _context_in_use(folder: Path) -> str:
    try:
        return str(json.loads((folder / "config.json").read_text()).get("currentContext") or "default")
    except (OSError, ValueError, AttributeError):  # Docker's client ignores such a file, too
        return "default"


def _context(name: str, folder: Path) -> Address:
    """The address in a context of Docker's client. Not by the SDK, which uses the default engine if it is missing."""
    key = hashlib.sha256(name.encode()).hexdigest()
    file = folder / "contexts" / "meta" / key / "meta.json"
    choose = "`docker context ls` lists them, and `docker context use NAME` chooses one"
    try:
        endpoint = json.loads(file.read_text())["Endpoints"]["docker"]
        parameters: dict[str, Any] = {"base_url": str(endpoint["Host"])}
    except FileNotFoundError:
        raise UserError(f"There is no Docker context {name!r}: {choose}.") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"The Docker context {name!r} can't be read ({file}): {choose}.") from None
    keys = folder / "contexts" / "tls" / key / "docker"
    if keys.is_dir():
        cert, ca = (str(keys / "cert.pem"), str(keys / "key.pem")), keys / "ca.pem"
        parameters["tls"] = TLSConfig(
            client_cert=cert if all(map(os.path.exists, cert)) else None,
            ca_cert=str(ca) if ca.exists() else None,
            verify=not endpoint.get("SkipTLSVerify", False),
        )
    where = f"{parameters['base_url']} (Docker's context {name!r})"
    return Address(where, f"start it, or take another context: {choose}", parameters)


@contextmanager
def _reaching(place: Address) -> Iterator[Address]:
    """Turns errors of the connection to an engine into UserError."""
    with readable_settings():
        try:
            yield place
        except (*RAISED, OSError) as error:
            raise UserError(_unreachable(place, error)) from error


@contextmanager
def readable_settings() -> Iterator[None]:
    """UserError if Docker's settings or a credential helper's output are malformed, which the SDK does not check."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SDK warns of a missing credential helper; the error names it
            yield
    except RAISED:
        raise
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UserError(
            "Docker's settings can't be read: fix config.json in DOCKER_CONFIG or ~/.docker and the credential helpers "
            "that it names, or move it away."
        ) from error


def _unreachable(place: Address, error: BaseException) -> str:
    cause = error.__cause__ or error
    if str(place.parameters.get("base_url", "")).startswith("ssh://"):
        return (
            f"no Docker engine answers at {place.name} ({words(error)}): forward its socket with `ssh -NL "
            "/tmp/engine.sock:/var/run/docker.sock HOST` and `export DOCKER_HOST=unix:///tmp/engine.sock`; `build` and "
            "`push` then work, but `run` does not, because it mounts folders of this machine."
        )
    if isinstance(error.__context__, PermissionError) or "Permission denied" in str(error):
        return (
            "this user may not talk to the Docker engine: join its group with `sudo usermod -aG docker $USER`, then "
            "log in again."
        )
    if cause is error and isinstance(error, DockerException) and not isinstance(error, APIError):
        return f"Docker's settings for {place.name} can't be used: {words(error)}."
    return f"no Docker engine answers at {place.name} ({words(cause)}): {place.advice}."


def refusal(call: Callable[[], object], foreseen: Collection[int] = (404,)) -> str:
    """Calls the engine and returns its error message; empty if it succeeds or fails with a status in `foreseen` (404:
    the object is gone).
    """
    try:
        call()
    except APIError as error:
        if error.status_code not in foreseen:
            return words(error)
    return ""


def find_image(client: docker.DockerClient, image: str, profiles: Collection[str] = ()) -> Image:
    """An image on the engine by its name, tag or ID; UserError if there is none.

    profiles: the known ones. If the missing image belongs to one of them, the error names the command that builds it.
    """
    try:
        return client.images.get(image)
    except NotFound:
        raise UserError(_absence(image, profiles)) from None
    except (APIError, NullResource) as error:
        if isinstance(error, APIError) and error.status_code != 400:
            raise
        raise UserError(f"{image!r} is not an image: pass the name, tag or ID of one on this engine.") from None


def _absence(image: str, profiles: Collection[str]) -> str:
    kit, tag = parse(image) or ("", "")
    if tag not in profiles:
        return f"there is no image {image} here: give one that `docker images` lists."
    return f"there is no image {image} here: build it with `python build.py build {kit} --profile {tag}`."


def image_store(info: Mapping[str, Any]) -> str:
    """The image store in an engine's `info`: `containerd`, or Docker's own `classic` store."""
    return "containerd" if _CONTAINERD in (info.get("DriverStatus") or []) else "classic"


def is_podman(version: Mapping[str, Any]) -> bool:
    """Whether an engine's `version` is that of podman's service, which has no BuildKit."""
    return any("podman" in str(each.get("Name", "")).lower() for each in version.get("Components") or [])


def drives_buildkit(version: str, has_buildx: Callable[[], object]) -> bool:
    """Whether a Docker client of this version builds with BuildKit: built in up to 22, a plugin since 23.

    has_buildx: called only if the version does not decide it.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if not match:
        return False
    major, minor = int(match[1]), int(match[2])
    return (18, 9) <= (major, minor) < (23, 0) or bool(has_buildx())


def client_version(client: str) -> str:
    """The version that a `docker` command prints, such as 28.2.2 or `podman version 5.4.2`; empty if it prints none.

    Not `docker version`, which also asks the engine and waits for one that does not answer.
    """
    return ask([client, "--version"]).removeprefix("Docker version ").partition(",")[0]


def buildx_version(client: str) -> str:
    """The version of a client's buildx, such as v0.13.1; empty if it has none."""
    found = re.search(r"\bv?\d+\.\d+\.\d+\S*", ask([client, "buildx", "version"]))
    return found[0] if found else ""


def find_client(search: str | None = None) -> Path:
    """The first `docker` on the search path, PATH by default, that drives BuildKit; UserError if there is none.

    A newer client without its buildx plugin silently falls back to the old builder, which knows no secrets.
    """
    without_buildkit: list[str] = []
    podman: list[str] = []
    for folder in (search if search is not None else os.environ.get("PATH", "")).split(os.pathsep):
        client = shutil.which("docker", path=folder)
        if client is None:
            continue
        version = client_version(client)
        if version and drives_buildkit(version, partial(ask, [client, "buildx", "version"])):
            return Path(client)
        described = f"{client} ({version or 'no version'})"
        (podman if version.startswith("podman") else without_buildkit).append(described)
    if without_buildkit:
        raise UserError(
            f"no Docker client here drives BuildKit, found {', '.join(without_buildkit)}: install its plugin with "
            "`apt-get install docker-buildx`, or on Debian 12 the client of `apt-get install docker.io`."
        )
    if podman:
        raise UserError(
            f"{', '.join(podman)} is podman, which has no BuildKit: install Docker's own client and engine, and put "
            "the client before it on PATH."
        )
    raise UserError("there is no `docker` command on PATH: install Docker's client with `apt-get install docker.io`.")


def client_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a build: BuildKit on, and without the caller's default platform and builder."""
    dropped = ("DOCKER_DEFAULT_PLATFORM", "BUILDX_BUILDER")
    return {**{key: value for key, value in environ.items() if key not in dropped}, **BUILDKIT}
