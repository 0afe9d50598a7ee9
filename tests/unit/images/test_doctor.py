"""`doctor.findings` for described machines."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from berth.images import doctor
from berth.images.probe import ContainerTest, Probe

GB = 1_000_000_000
ENGINE: dict[str, Any] = {
    "ServerVersion": "20.10.24",
    "OperatingSystem": "Debian GNU/Linux 12 (bookworm)",
    "Architecture": "x86_64",
    "OSType": "linux",
    "Runtimes": {"runc": {}},
    "DriverStatus": [["Backing Filesystem", "extfs"]],
}
RUN = ContainerTest("berth-base:bookworm")
WELL = Probe(
    machine="x86_64",
    engine=ENGINE,
    engine_error="",
    client="/usr/bin/docker",
    client_error="",
    first_client="/usr/bin/docker",
    client_version="28.2.2, buildx v0.13.1",
    container=RUN,
    disk_free=70 * GB,
    base="berth-base:bookworm",
    memory=16 * GB,
    compose="docker-compose version 1.29.2",
    credentials="shared-credentials-file",
    region="eu-west-1",
)


def test_all_checks_pass_on_a_complete_machine() -> None:
    findings = doctor.findings(WELL)
    assert [(finding.name, finding.status, finding.remedy) for finding in findings] == [
        ("Docker engine", "ok", ""),
        ("BuildKit client", "ok", ""),
        ("Architecture", "ok", ""),
        ("Mounts", "ok", ""),
        ("Disk", "ok", ""),
        ("Base image", "ok", ""),
        ("Package index", "ok", ""),
        ("Memory", "ok", ""),
        ("GPU", "ok", ""),
        ("Compose", "ok", ""),
        ("AWS", "ok", ""),
    ]
    assert doctor.can_build(findings)


ARM = {**ENGINE, "Architecture": "aarch64"}
CONTAINERD = {"DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}
NVIDIA = {**ENGINE, "Runtimes": {"runc": {}, "nvidia": {}}}


@pytest.mark.parametrize(
    ("probe", "name", "status", "message", "remedy"),
    [
        pytest.param(
            replace(WELL, engine=None, engine_error="no Docker engine answers: run `sh docker/engine.sh`."),
            "Docker engine",
            "missing",
            "no Docker engine answers",
            "sudo sh docker/engine.sh",
            id="no-engine",
        ),
        pytest.param(
            replace(WELL, engine=None, engine_error="no Docker engine answers at x (Docker's context 'c'): start it."),
            "Docker engine",
            "missing",
            "context 'c'",
            "",
            id="no-engine-in-context",
        ),
        pytest.param(
            replace(WELL, client=None, client_error="no client drives BuildKit"),
            "BuildKit client",
            "missing",
            "no client drives BuildKit",
            "apt-get install docker-buildx",
            id="no-buildkit",
        ),
        pytest.param(
            replace(WELL, first_client="/usr/local/bin/docker"),
            "BuildKit client",
            "warn",
            "the first docker on PATH, /usr/local/bin/docker, can't build with BuildKit",
            "export PATH=/usr/bin:$PATH",
            id="other-client-first-on-path",
        ),
        pytest.param(
            replace(WELL, engine={**ENGINE, **CONTAINERD}),
            "Docker engine",
            "ok",
            "20.10.24, Debian GNU/Linux 12 (bookworm), containerd image store",
            "",
            id="containerd-store",
        ),
        pytest.param(WELL, "Docker engine", "ok", "classic image store", "", id="classic-store"),
        pytest.param(
            replace(WELL, podman=True), "Docker engine", "missing", "podman 20.10.24", "docker context use", id="podman"
        ),
        pytest.param(
            WELL, "BuildKit client", "ok", "/usr/bin/docker, 28.2.2, buildx v0.13.1", "", id="client-versions"
        ),
        pytest.param(
            replace(WELL, engine=ARM, container=ContainerTest("b", "exec format error")),
            "Architecture",
            "missing",
            "aarch64: no linux/amd64 container runs (exec format error)",
            "binfmt",
            id="arm-without-emulation",
        ),
        pytest.param(
            replace(WELL, container=ContainerTest("b:1", "no such runtime: x")),
            "Architecture",
            "missing",
            "no such runtime: x",
            "docker run --rm b:1 true",
            id="no-container-runs",
        ),
        pytest.param(
            replace(WELL, engine={**ARM, "OperatingSystem": "Alpine Linux"}),
            "Architecture",
            "warn",
            "aarch64: linux/amd64 is emulated",
            "",
            id="arm-with-emulation",
        ),
        pytest.param(
            replace(WELL, engine=ARM, container=ContainerTest()),
            "Architecture",
            "warn",
            "could not be tested",
            "binfmt",
            id="arm-without-an-image",
        ),
        pytest.param(replace(WELL, container=ContainerTest()), "Mounts", "warn", "not tested", "build", id="no-image"),
        pytest.param(
            replace(WELL, container=ContainerTest("b", unseen={"/tmp": "bind source path does not exist"})),
            "Mounts",
            "warn",
            "does not see /tmp (bind source path does not exist)",
            "export TMPDIR=",
            id="temporary-folder-not-shared",
        ),
        pytest.param(
            replace(WELL, engine={**ENGINE, "OSType": "windows"}),
            "Architecture",
            "missing",
            "windows containers",
            "-SwitchLinuxEngine",
            id="windows-containers",
        ),
        pytest.param(
            replace(WELL, disk_free=6 * GB - 1),
            "Disk",
            "missing",
            "5.9 GB free; a build needs 6",
            "docker builder prune",
            id="disk-full",
        ),
        pytest.param(replace(WELL, base=None), "Base image", "ok", "a build pulls it", "", id="base-pulled-by-build"),
        pytest.param(
            replace(WELL, base=None, registry_error="no such host", makes_base=True),
            "Base image",
            "missing",
            "can't be pulled (no such host)",
            "python build.py base && export BERTH_BASE_IMAGE=berth-base:bookworm",
            id="base-can-be-made",
        ),
        pytest.param(
            replace(WELL, base=None, registry_error="no such host"),
            "Base image",
            "missing",
            "can't be pulled (no such host)",
            "export BERTH_BASE_IMAGE=NAME",
            id="no-base",
        ),
        pytest.param(
            replace(WELL, index_error="timed out"),
            "Package index",
            "missing",
            "https://pypi.org/simple does not answer (timed out)",
            "pip config set global.index-url",
            id="no-index",
        ),
        pytest.param(
            replace(WELL, disk_free=20 * GB),
            "Disk",
            "ok",
            "20.0 GB free, enough for cpu; a profile with CUDA needs 30",
            "",
            id="disk-for-cpu-only",
        ),
        pytest.param(replace(WELL, disk_free=10 * GB), "Disk", "warn", "10.0 GB free", "prune", id="disk-tight"),
        pytest.param(replace(WELL, disk_free=None), "Disk", "warn", "can't be read", "system df", id="disk-unreadable"),
        pytest.param(replace(WELL, memory=2 * GB), "Memory", "warn", "2 GB", "batch_size=4", id="little-memory"),
        pytest.param(
            replace(WELL, gpus=["NVIDIA T4, 580.95"]),
            "GPU",
            "warn",
            "1 × NVIDIA T4, 580.95, but the engine has no NVIDIA runtime",
            "nvidia-ctk runtime configure",
            id="gpu-without-runtime",
        ),
        pytest.param(
            replace(WELL, gpus=["NVIDIA T4, 580.95"] * 4, engine=NVIDIA), "GPU", "ok", "4 × NVIDIA T4", "", id="gpus"
        ),
        pytest.param(WELL, "Disk", "ok", "70.0 GB free; both images need 15, with CUDA 30", "", id="disk-large-enough"),
        pytest.param(
            replace(WELL, leftovers=("container a", "network a", "network b", "network c", "network d")),
            "Leftovers",
            "warn",
            "of runs that were killed: container a, network a, network b, 2 more",
            "sudo systemctl restart docker",
            id="leftovers",
        ),
        pytest.param(replace(WELL, compose=None), "Compose", "warn", "not found", "docker-compose", id="no-compose"),
        pytest.param(
            replace(WELL, credentials=None), "AWS", "warn", "no credentials", "export AWS_PROFILE", id="no-credentials"
        ),
        pytest.param(
            replace(WELL, region=None),
            "AWS",
            "warn",
            "credentials (shared-credentials-file), no region: a push",
            "export AWS_REGION=",
            id="no-region",
        ),
        pytest.param(
            replace(WELL, credentials=None, region=None, aws_error="there is no AWS profile 'x': set AWS_PROFILE."),
            "AWS",
            "warn",
            "there is no AWS profile 'x': set AWS_PROFILE.",
            "",
            id="no-aws-profile",
        ),
        pytest.param(
            replace(WELL, region=None, aws_error="'x' is no region: give one."),
            "AWS",
            "warn",
            "credentials (shared-credentials-file), but 'x' is no region: give one.",
            "",
            id="no-such-region",
        ),
    ],
)
def test_finding_of_each_check(probe: Probe, name: str, status: str, message: str, remedy: str) -> None:
    found = {finding.name: finding for finding in doctor.findings(probe)}
    assert found[name].status == status
    assert message in found[name].message
    assert remedy in found[name].remedy
    assert doctor.can_build(list(found.values())) == (status != "missing")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(doctor.render(list(found.values())))
    assert remedy in console.export_text()


@pytest.mark.parametrize(
    ("info", "passes"),
    [
        pytest.param({}, False, id="nothing-reported"),
        pytest.param({"Runtimes": {"runc": {}}, "DiscoveredDevices": None}, False, id="runc-only"),
        pytest.param({"Runtimes": {"nvidia": {}}}, True, id="nvidia-runtime"),
        pytest.param({"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]}, True, id="cdi"),
    ],
)
def test_passes_gpus(info: dict[str, Any], passes: bool) -> None:
    assert doctor.passes_gpus(info) == passes
