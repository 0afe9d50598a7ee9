"""What is missing on this machine, with the exact command that mends it.

`probe` looks (engine, tools, disk, credentials) and decides nothing; every check is a small pure function from what was
seen to a Finding. `can_build` says whether the default profile can be built here.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from docker.errors import DockerException
from rich.table import Table
from rich.text import Text

from berth.images.engine import connect, find_client
from berth.images.errors import UserError

DISK_WANTED_GB = 15.0
DISK_NEEDED_GB = 6.0
MEMORY_WANTED_GB = 4.0
_GB = 1_000_000_000
_AMD64 = ("x86_64", "amd64")
_STYLES = {"ok": "green", "warn": "yellow", "missing": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `ok`, `warn` (works, or is not needed for a build) or `missing` (no build without it)."""

    name: str
    status: Literal["ok", "warn", "missing"]
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was seen on this machine; None and empty mean that it was not there, sizes are in bytes."""

    machine: str
    engine: Mapping[str, Any] | None
    engine_error: str
    client: str | None
    client_error: str
    disk_free: int | None
    memory: int
    gpus: Sequence[str] = field(default_factory=tuple)
    compose: str | None = None
    credentials: str | None = None


def probe() -> Probe:
    """Looks at everything, quietly: what is not there is a finding, not an error."""
    engine, engine_error = _engine()
    client, client_error = _client()
    return Probe(
        machine=platform.machine(),
        engine=engine,
        engine_error=engine_error,
        client=client,
        client_error=client_error,
        disk_free=_disk_free(engine),
        memory=int(engine["MemTotal"]) if engine else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=_output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines(),
        compose=_compose(),
        credentials=_credentials(),
    )


def findings(seen: Probe) -> list[Finding]:
    """Every check's finding, in the order in which a person would mend things."""
    return [check(seen) for check in (engine, client, architecture, disk, memory, gpu, compose, credentials)]


def can_build(found: Sequence[Finding]) -> bool:
    """Whether nothing that a build of the default profile needs is missing."""
    return all(finding.status != "missing" for finding in found)


def engine(seen: Probe) -> Finding:
    """A Docker engine that answers."""
    if seen.engine is None:
        return Finding("Docker engine", "missing", seen.engine_error, "sudo sh docker/engine.sh")
    return Finding("Docker engine", "ok", f"{seen.engine['ServerVersion']}, {seen.engine['OperatingSystem']}")


def client(seen: Probe) -> Finding:
    """A docker command that can drive BuildKit."""
    if seen.client is None:
        remedy = "sudo apt-get install docker.io   # or the package docker-buildx-plugin of Docker's own archive"
        return Finding("BuildKit client", "missing", seen.client_error, remedy)
    return Finding("BuildKit client", "ok", seen.client)


def architecture(seen: Probe) -> Finding:
    """An engine that runs linux/amd64, the only platform of the images."""
    name = "Architecture"
    where = seen.machine if seen.engine is None else seen.engine["Architecture"]
    if seen.engine is not None and seen.engine["OSType"] != "linux":
        remedy = "switch Docker Desktop to Linux containers"
        return Finding(name, "missing", f"the engine runs {seen.engine['OSType']} containers", remedy)
    if where in _AMD64:
        return Finding(name, "ok", "linux/amd64")
    if seen.engine is not None and "Docker Desktop" in seen.engine["OperatingSystem"]:
        return Finding(name, "warn", f"{where}: linux/amd64 is emulated, and slow", "build on a linux/amd64 machine")
    remedy = "docker run --privileged --rm tonistiigi/binfmt --install amd64   # or build on a linux/amd64 machine"
    return Finding(name, "missing", f"{where}, and the images are for linux/amd64", remedy)


def disk(seen: Probe) -> Finding:
    """Room where the engine keeps its images."""
    name, remedy = "Disk", "docker system prune"
    if seen.disk_free is None:
        return Finding(
            name, "warn", f"free space can't be seen from here; {DISK_WANTED_GB:.0f} GB are wanted", "docker system df"
        )
    free = f"{seen.disk_free / _GB:.0f} GB free"
    if seen.disk_free < DISK_NEEDED_GB * _GB:
        return Finding(name, "missing", f"{free}, and a build needs {DISK_NEEDED_GB:.0f}", remedy)
    if seen.disk_free < DISK_WANTED_GB * _GB:
        return Finding(name, "warn", f"{free}; with both images and the cache {DISK_WANTED_GB:.0f} are wanted", remedy)
    return Finding(name, "ok", free)


def memory(seen: Probe) -> Finding:
    """Memory for training the demo's model beside everything else."""
    has = f"{seen.memory / _GB:.0f} GB"
    if seen.memory < MEMORY_WANTED_GB * _GB:
        return Finding("Memory", "warn", f"{has}; training wants {MEMORY_WANTED_GB:.0f} or more", "use smaller batches")
    return Finding("Memory", "ok", has)


def gpu(seen: Probe) -> Finding:
    """GPUs, and the runtime that hands them to containers; a build needs neither."""
    if not seen.gpus:
        return Finding("GPU", "ok", "none (only --gpus needs one)")
    has = f"{len(seen.gpus)} × {seen.gpus[0]}"
    if seen.engine is not None and not passes_gpus(seen.engine):
        remedy = (
            "sudo apt-get install nvidia-container-toolkit && "
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        )
        return Finding("GPU", "warn", f"{has}, but the engine has no NVIDIA runtime: --gpus won't work", remedy)
    return Finding("GPU", "ok", has)


def compose(seen: Probe) -> Finding:
    """Compose, by which the SageMaker SDK's local mode starts containers; `run` does without."""
    if seen.compose is None:
        return Finding(
            "Compose",
            "warn",
            "not found: the SageMaker SDK's local mode needs it",
            "sudo apt-get install docker-compose",
        )
    return Finding("Compose", "ok", seen.compose)


def credentials(seen: Probe) -> Finding:
    """AWS credentials, which only a push needs."""
    if seen.credentials is None:
        return Finding("AWS credentials", "warn", "none: a push to ECR needs them", "aws configure")
    return Finding("AWS credentials", "ok", f"found ({seen.credentials})")


def passes_gpus(info: Mapping[str, Any]) -> bool:
    """Whether an engine of which this is the info can hand GPUs to a container: NVIDIA's runtime, or CDI devices."""
    devices = [each.get("Source") for each in info.get("DiscoveredDevices") or []]
    return "nvidia" in (info.get("Runtimes") or {}) or "cdi" in devices


def render(found: Sequence[Finding]) -> Table:
    """The findings as a table for a rich console, each remedy under what it mends."""
    table = Table("", "", "", show_header=False, box=None)
    for finding in found:
        text = Text(finding.message)
        if finding.remedy:
            text.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(Text(finding.status, style=_STYLES[finding.status]), finding.name, text)
    return table


def _engine() -> tuple[Mapping[str, Any] | None, str]:
    try:
        return connect().info(), ""
    except (UserError, DockerException) as error:
        return None, str(error)


def _client() -> tuple[str | None, str]:
    try:
        return str(find_client()), ""
    except UserError as error:
        return None, str(error)


def _disk_free(info: Mapping[str, Any] | None) -> int | None:
    """Free bytes under the engine's folder; None if the engine keeps it elsewhere, in a machine of its own."""
    folder = Path(info["DockerRootDir"]) if info else Path("/var/lib")
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None


def _compose() -> str | None:
    """The first line that a compose says of itself, in either of its two forms."""
    for command in (["docker-compose", "--version"], ["docker", "compose", "version"]):
        told = _output(command)
        if told:
            return told.splitlines()[0]
    return None


def _credentials() -> str | None:
    """Where boto3 found credentials, never what they are."""
    import boto3  # half a second, which `run` would pay as well
    from botocore.exceptions import BotoCoreError

    try:
        found = boto3.Session().get_credentials()
    except BotoCoreError:
        return None
    return str(found.method) if found else None


def _output(command: Sequence[str]) -> str:
    """What a command prints, empty if it is not there or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
