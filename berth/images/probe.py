"""Collects what a build, a run or a push needs of this machine: engine, tools, disk, network, credentials.

`probe_machine` raises no error for a missing thing; `berth/images/doctor.py` judges the result.
"""

import os
import platform
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from docker import DockerClient
from docker.types import Mount
from requests.exceptions import RequestException

from berth.common import http, labels, owner
from berth.common.concurrency import BackgroundTask
from berth.common.containers import Access, CommandFailed, run_once
from berth.common.engine import buildx_version, client_version, connect, find_client, is_podman, readable_settings
from berth.common.engine_errors import RAISED, explain, words
from berth.common.errors import UserError
from berth.common.subprocesses import ask
from berth.images.build.base import VARIABLE, local_base
from berth.images.network import build_network
from berth.images.pins import pins, pins_file

PUBLIC_INDEX = "https://pypi.org/simple"
_PATIENCE_S = 10
_ENGINE_PATIENCE_S = 30  # an engine that is building answers slowly
_CONTAINER_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class ContainerTest:
    """The result of running a linux/amd64 container of `image`; image: empty if the engine has no image to test with.

    error: why it did not run. unseen: folders of this machine that it could not read, with the reason for each.
    """

    image: str = ""
    error: str = ""
    unseen: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probe:
    """The state of this machine; None or empty means not found, sizes are in bytes.

    podman: whether the engine is podman's service. first_client: the first `docker` on PATH. client_version: of the
    client and its buildx. base: the base image on the engine; registry_error: why it can't be pulled; makes_base:
    whether `build.py base` can make one. index_error: why the package index does not answer. leftovers: containers and
    networks of runs whose process is gone, such as "network berth-20261122-191051-c89ce5". credentials: where boto3
    found them; aws_error: the error with which a push would end because of AWS's settings here.
    """

    machine: str
    engine: Mapping[str, Any] | None
    engine_error: str
    client: str | None
    client_error: str
    first_client: str | None
    disk_free: int | None
    memory: int
    podman: bool = False
    client_version: str = ""
    container: ContainerTest = ContainerTest()
    base: str | None = None
    registry_error: str = ""
    makes_base: bool = False
    index: str = PUBLIC_INDEX
    index_error: str = ""
    gpus: Sequence[str] = field(default_factory=tuple)
    compose: str | None = None
    leftovers: Sequence[str] = field(default_factory=tuple)
    credentials: str | None = None
    region: str | None = None
    aws_error: str = ""


FindAws = Callable[[], tuple[str | None, str | None, str]]
"""Returns the source of AWS credentials, the region, and the error that a push would raise for AWS's settings."""


def probe_machine(find_aws: FindAws) -> Probe:
    """Checks everything. The package index and AWS are queried in the background, because each may be slow."""
    asking_index, asking_aws = BackgroundTask(_index), BackgroundTask(find_aws)
    engine, podman, engine_error = _engine()
    client, client_error = _client()
    base, registry_error = _base() if engine else (None, "")
    index, index_error = asking_index.result()
    credentials, region, aws_error = asking_aws.result()
    return Probe(
        machine=platform.machine(),
        engine=engine,
        engine_error=engine_error,
        client=client,
        client_error=client_error,
        first_client=shutil.which("docker"),
        disk_free=_disk_free(engine),
        memory=int(engine["MemTotal"]) if engine else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        podman=podman,
        client_version=_versions(client) if client else "",
        container=_container(base) if engine else ContainerTest(),
        base=base,
        registry_error=registry_error,
        makes_base=os.geteuid() == 0 and shutil.which("apt-get") is not None,
        index=index,
        index_error=index_error,
        gpus=ask(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines(),
        compose=_compose(),
        leftovers=_leftovers() if engine else (),
        credentials=credentials,
        region=region,
        aws_error=aws_error,
    )


def _engine() -> tuple[Mapping[str, Any] | None, bool, str]:
    """`docker info` of the engine, whether it is podman's service, and the error if there is no info."""
    try:
        client = connect(timeout_s=_ENGINE_PATIENCE_S)
        return client.info(), is_podman(client.version()), ""
    except (UserError, *RAISED) as error:
        return None, False, explain(error) or str(error)


def _client() -> tuple[str | None, str]:
    try:
        return str(find_client()), ""
    except UserError as error:
        return None, str(error)


def _versions(client: str) -> str:
    """The versions of a client and its buildx, as one text."""
    buildx = buildx_version(client)
    return f"{client_version(client)}, {f'buildx {buildx}' if buildx else 'its own BuildKit'}"


def _container(base: str | None) -> ContainerTest:
    """Runs a container of the base or of one of berth's images. It reads a file in the temporary folder and one in the
    checkout, as containers of `run` do. If it fails, further containers find the reason.
    """
    try:
        client = connect(timeout_s=_PATIENCE_S)
        own = client.images.list(filters={"label": labels.KIT}) if base is None else []
        image = base or (str(own[0].id) if own else "")
    except (UserError, *RAISED) as error:
        return ContainerTest(error=_reason(error))
    if not image:
        return ContainerTest()
    with tempfile.TemporaryDirectory(prefix="berth-doctor-") as folder:
        file = Path(folder) / "file"
        file.write_text(secrets.token_hex(16))
        files = {tempfile.gettempdir(): file, str(pins.ROOT): pins.PATH}
        if not _why_unread(client, image, list(files.values())):
            return ContainerTest(image)
        if why := _why_unread(client, image, []):
            return ContainerTest(image, why)
        reasons = {place: _why_unread(client, image, [file]) for place, file in files.items()}
    return ContainerTest(image, unseen={place: why for place, why in reasons.items() if why})


def _why_unread(client: DockerClient, image: str, files: Sequence[Path]) -> str:
    """Why a container of the image can't print these files; empty if it can."""
    targets = {f"/run/berth/{number}": file for number, file in enumerate(files)}
    mounts = [Mount(target, str(file), type="bind", read_only=True) for target, file in targets.items()]
    command = ["cat", *targets] if files else ["true"]
    try:
        printed = run_once(client, image, command, Access(mounts), patience_s=_CONTAINER_PATIENCE_S)
    except CommandFailed as failed:
        return http.in_few_words(failed.complaint or f"exit code {failed.code}")
    except (UserError, *RAISED) as error:
        return _reason(error)
    return "" if printed == b"".join(file.read_bytes() for file in files) else "another file is in its place"


def _base() -> tuple[str | None, str]:
    """The base image on the engine, else None and why its registry does not have it for the engine ("" if it has)."""
    all_pins, requested = pins_file.load(), os.environ.get(VARIABLE)
    try:
        found = local_base(connect(), all_pins, requested)
        if found is not None:
            return found.reference, ""
        with readable_settings():
            connect(timeout_s=_PATIENCE_S).images.get_registry_data(requested or all_pins.base_image)
    except (UserError, *RAISED) as error:
        return None, _reason(error)
    return None, ""


def _index() -> tuple[str, str]:
    """The package index of a build, without its password, and why it does not answer ("" if it does)."""
    found = build_network.gather(os.environ)
    url = found.index.url or PUBLIC_INDEX
    shown = http.without_password(url)
    try:
        answer = requests.head(f"{url.rstrip('/')}/pip/", verify=found.verify, timeout=_PATIENCE_S)
    except (RequestException, OSError) as error:
        return shown, _reason(error)
    return shown, f"status {answer.status_code}" if answer.status_code >= 400 else ""


def _reason(error: Exception) -> str:
    """An exception in a few words; for one from the engine, its answer."""
    return http.in_few_words(words(error))


def _disk_free(info: Mapping[str, Any] | None) -> int | None:
    """Free bytes in the engine's folder; None if the engine is on another machine or in a VM."""
    folder = Path(info["DockerRootDir"]) if info else Path("/var/lib")
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _leftovers() -> list[str]:
    """The containers and networks of dead runs, which `berth/local/cleanup.py` would remove."""
    try:
        return [name for name, _ in owner.left_behind(connect(timeout_s=_PATIENCE_S))]
    except (UserError, *RAISED):
        return []


def _compose() -> str | None:
    """The first line of Compose's version, in either of its two forms."""
    for command in (["docker-compose", "--version"], ["docker", "compose", "version"]):
        if output := ask(command):
            return output.splitlines()[0]
    return None
