"""What is missing on this machine, with the exact command that fixes it.

Every check is a pure function from a Probe (`berth/images/probe.py`) to a Finding. `can_build` says whether the default
profile can be built here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from berth.common.engine import image_store
from berth.images.probe import Probe

DISK_WANTED_GB = 15.0
DISK_CUDA_GB = 30.0
DISK_NEEDED_GB = 6.0
MEMORY_WANTED_GB = 4.0
_GB = 1_000_000_000
_AMD64 = ("x86_64", "amd64")
_STYLES = {"ok": "green", "warn": "yellow", "missing": "red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: `ok`, `warn` (works, or no build needs it) or `missing` (a build needs it)."""

    name: str
    status: Literal["ok", "warn", "missing"]
    message: str
    remedy: str = ""


def findings(seen: Probe) -> list[Finding]:
    """The findings of all checks, in the order in which a user should fix them."""
    return [finding for check in CHECKS if (finding := check(seen)) is not None]


def can_build(found: Sequence[Finding]) -> bool:
    """Whether nothing that a build of the default profile needs is missing."""
    return all(finding.status != "missing" for finding in found)


def check_engine(seen: Probe) -> Finding:
    """A Docker engine that answers."""
    name = "Docker engine"
    if seen.engine is None:
        # For a remote engine, such as that of a context, the error itself says what to do.
        starts_one = "docker/engine.sh" in seen.engine_error
        return Finding(name, "missing", seen.engine_error, "sudo sh docker/engine.sh" if starts_one else "")
    version = f"{seen.engine['ServerVersion']}, {seen.engine['OperatingSystem']}"
    if seen.podman:
        remedy = "docker context use default   # or unset DOCKER_HOST: Docker's own engine can build images"
        return Finding(name, "missing", f"podman {version}: it has no BuildKit, so it can't build images", remedy)
    return Finding(name, "ok", f"{version}, {image_store(seen.engine)} image store")


def check_client(seen: Probe) -> Finding:
    """A docker command that can drive BuildKit."""
    if seen.client is None:
        remedy = "sudo apt-get install docker-buildx   # on Debian 12, which has no such package: docker.io"
        return Finding("BuildKit client", "missing", seen.client_error, remedy)
    client = f"{seen.client}, {seen.client_version}"
    if seen.first_client not in (None, seen.client):
        message = f"{client}; the first docker on PATH, {seen.first_client}, can't build with BuildKit"
        return Finding("BuildKit client", "warn", message, f"export PATH={Path(seen.client).parent}:$PATH")
    return Finding("BuildKit client", "ok", client)


def check_architecture(seen: Probe) -> Finding:
    """An engine that runs linux/amd64, the only platform of the images, natively or by emulation."""
    name = "Architecture"
    where = seen.machine if seen.engine is None else seen.engine["Architecture"]
    if seen.engine is not None and seen.engine["OSType"] != "linux":
        remedy = r"& 'C:\Program Files\Docker\Docker\DockerCli.exe' -SwitchLinuxEngine"
        return Finding(name, "missing", f"the engine runs {seen.engine['OSType']} containers", remedy)
    emulate = "docker run --privileged --rm tonistiigi/binfmt --install amd64"
    if seen.container.error:
        remedy = f"docker run --rm {seen.container.image} true   # shows what the engine says"
        remedy = remedy if where in _AMD64 else f"{emulate}   # or build on a linux/amd64 machine"
        return Finding(name, "missing", f"{where}: no linux/amd64 container runs ({seen.container.error})", remedy)
    if where in _AMD64:
        return Finding(name, "ok", "linux/amd64")
    if seen.container.image:
        return Finding(name, "warn", f"{where}: linux/amd64 is emulated, and slow")
    message = f"{where}: whether it emulates linux/amd64 could not be tested because no image of berth is here yet"
    return Finding(name, "warn", message, f"{emulate}   # if a build fails with `exec format error`")


def check_mounts(seen: Probe) -> Finding | None:
    """An engine that can mount this machine's files, as `run` needs; a build needs no mounts."""
    name = "Mounts"
    if seen.engine is None or seen.container.error:
        return None
    if not seen.container.image:
        message = "not tested because no image of berth is here yet"
        return Finding(name, "warn", message, "python build.py build   # then doctor again")
    if seen.container.unseen:
        unseen = "; ".join(f"{folder} ({why})" for folder, why in seen.container.unseen.items())
        remedy = "export TMPDIR=$HOME/tmp && mkdir -p $TMPDIR   # or another folder that the engine shares"
        return Finding(name, "warn", f"a container does not see {unseen}; `run` and `outdated` won't work", remedy)
    return Finding(name, "ok", "a container sees this checkout and the temporary folder")


def check_disk(seen: Probe) -> Finding:
    """Free disk space where the engine keeps its images."""
    name, remedy = "Disk", "docker builder prune   # old layers; python build.py clean removes berth's images as well"
    if seen.disk_free is None:
        return Finding(
            name,
            "warn",
            f"free space can't be read from here; {DISK_WANTED_GB:.0f} GB are recommended",
            "docker system df",
        )
    free = (
        f"{seen.disk_free // (_GB / 10) / 10:.1f} GB free"  # rounded down: "6.0 GB free, a build needs 6" would confuse
    )
    if seen.disk_free < DISK_NEEDED_GB * _GB:
        return Finding(name, "missing", f"{free}; a build needs {DISK_NEEDED_GB:.0f}", remedy)
    if seen.disk_free < DISK_WANTED_GB * _GB:
        return Finding(name, "warn", f"{free}; both images and the cache need about {DISK_WANTED_GB:.0f}", remedy)
    if seen.disk_free < DISK_CUDA_GB * _GB:
        return Finding(name, "ok", f"{free}, enough for cpu; a profile with CUDA needs {DISK_CUDA_GB:.0f}")
    return Finding(name, "ok", f"{free}; both images need {DISK_WANTED_GB:.0f}, with CUDA {DISK_CUDA_GB:.0f}")


def check_base(seen: Probe) -> Finding:
    """The image that a build starts from: on the engine, or in its registry."""
    name = "Base image"
    if seen.base is not None:
        return Finding(name, "ok", seen.base)
    if not seen.registry_error:
        return Finding(name, "ok", "not on the engine yet; a build pulls it")
    remedy = "python build.py base && export BERTH_BASE_IMAGE=berth-base:bookworm"
    if not seen.makes_base:
        remedy = "docker load -i FILE && export BERTH_BASE_IMAGE=NAME   # a Debian or Ubuntu image"
    return Finding(name, "missing", f"not on the engine, and can't be pulled ({seen.registry_error})", remedy)


def check_index(seen: Probe) -> Finding:
    """The package index, from which every layer that is not cached installs its packages."""
    if seen.index_error:
        remedy = "pip config set global.index-url https://INDEX/simple   # and global.cert for a CA of your own"
        return Finding("Package index", "missing", f"{seen.index} does not answer ({seen.index_error})", remedy)
    return Finding("Package index", "ok", seen.index)


def check_memory(seen: Probe) -> Finding:
    """Enough memory to train the demo's model."""
    has = f"{seen.memory / _GB:.0f} GB"
    if seen.memory < MEMORY_WANTED_GB * _GB:
        remedy = "python build.py run train … -p per_device_train_batch_size=4"
        return Finding("Memory", "warn", f"{has}; training needs {MEMORY_WANTED_GB:.0f} or more", remedy)
    return Finding("Memory", "ok", has)


def check_gpu(seen: Probe) -> Finding:
    """GPUs, and the runtime that passes them to containers; a build needs neither."""
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


def check_compose(seen: Probe) -> Finding:
    """Compose, which the SageMaker SDK's local mode uses to start containers; `run` does not need it."""
    if seen.compose is None:
        return Finding(
            "Compose",
            "warn",
            "not found: the SageMaker SDK's local mode needs it",
            "sudo apt-get install docker-compose",
        )
    return Finding("Compose", "ok", seen.compose)


def check_leftovers(seen: Probe) -> Finding | None:
    """Containers and networks of killed runs, which the next run tries to remove; None if there are none."""
    if not seen.leftovers:
        return None
    shown = [*seen.leftovers[:3], *([f"{len(seen.leftovers) - 3} more"] if len(seen.leftovers) > 3 else [])]
    return Finding(
        "Leftovers",
        "warn",
        f"of runs that were killed: {', '.join(shown)}",
        "python build.py clean --dry-run   # shows what the next `run` removes; if it stays, restart the engine: "
        "sudo systemctl restart docker",
    )


def check_credentials(seen: Probe) -> Finding:
    """AWS credentials and region, which only a push to ECR needs."""
    name = "AWS"
    has = [f"credentials ({seen.credentials})"] if seen.credentials else []
    has += [seen.region] if seen.region else []
    if seen.aws_error:  # it says what to do
        return Finding(name, "warn", f"{', '.join(has)}, but {seen.aws_error}" if has else seen.aws_error)
    missing = ["no credentials"] if seen.credentials is None else []
    missing += ["no region"] if seen.region is None else []
    remedy = "export AWS_REGION=us-east-1   # or push with --region"
    if seen.credentials is None:
        remedy = "export AWS_PROFILE=NAME   # or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; and AWS_REGION"
    if missing:
        return Finding(name, "warn", f"{', '.join([*has, *missing])}: a push to ECR needs both", remedy)
    return Finding(name, "ok", ", ".join(has))


CHECKS = (
    check_engine,
    check_client,
    check_architecture,
    check_mounts,
    check_disk,
    check_base,
    check_index,
    check_memory,
    check_gpu,
    check_compose,
    check_leftovers,
    check_credentials,
)


def passes_gpus(info: Mapping[str, Any]) -> bool:
    """Whether an engine with this `docker info` can pass GPUs to a container: NVIDIA's runtime, or CDI devices."""
    devices = [each.get("Source") for each in info.get("DiscoveredDevices") or []]
    return "nvidia" in (info.get("Runtimes") or {}) or "cdi" in devices


def render(found: Sequence[Finding]) -> Table:
    """The findings as a table for a rich console, each remedy below its finding."""
    table = Table("", "", "", show_header=False, box=None)
    for finding in found:
        text = Text(finding.message)
        if finding.remedy:
            text.append(f"\n→ {finding.remedy}", style="bold")
        table.add_row(Text(finding.status, style=_STYLES[finding.status]), finding.name, text)
    return table
