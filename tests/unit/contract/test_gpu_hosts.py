"""The table of hosts and drivers agrees with README, with the check in the image and with the recommended AMIs."""

import re

import pytest

from berth.contract import gpu_hosts
from berth.images.pins import pins
from berth.runtime.gpu.compatibility import incompatibility
from berth.runtime.gpu.driver import Device, DriverState

AMI_DRIVERS = {ami: driver for driver, ami in (*gpu_hosts.ENDPOINT_AMIS.items(), *gpu_hosts.TRANSFORM_AMIS.items())}


def refused(cuda: gpu_hosts.Version, host: gpu_hosts.HostFamily, driver: int) -> bool:
    """Whether an image of this CUDA refuses a host of the family with this driver."""
    cuda_version = next(version for version, branch in gpu_hosts.DRIVERS.items() if branch == driver)
    state = DriverState(version=cuda_version, code=0, devices=(Device(host.gpu, host.capability),))
    return incompatibility(gpu_hosts.dotted(cuda), 1, state) is not None


@pytest.mark.parametrize("name", gpu_hosts.FAMILIES)
@pytest.mark.parametrize("profile", gpu_hosts.PROFILES)
def test_ami_is_named_if_image_refuses_default_host(name: str, profile: str) -> None:
    host, cuda = gpu_hosts.FAMILIES[name], gpu_hosts.PROFILES[profile]
    if not gpu_hosts.suits(cuda, host.capability):
        assert refused(cuda, host, 580)
        return
    endpoint = gpu_hosts.endpoint_ami(cuda, f"ml.{name}.xlarge")
    transform = gpu_hosts.transform_ami(cuda, f"ml.{name}.xlarge")
    for default, ami, is_possible in (
        (host.endpoint, endpoint, True),
        (host.transform, transform, gpu_hosts.can_transform(cuda)),
    ):
        assert bool(ami) == (is_possible and (default is None or refused(cuda, host, default)))
        assert not ami or not refused(cuda, host, AMI_DRIVERS[ami])


@pytest.mark.parametrize(
    ("cuda", "instance", "endpoint", "transform"),
    [
        ((13, 0), "ml.g5.xlarge", "al2023-ami-sagemaker-inference-gpu-4-1", ""),
        ((13, 0), "ml.p5en.48xlarge", "al2023-ami-sagemaker-inference-gpu-4-1", ""),
        ((12, 4), "ml.g4dn.xlarge", "al2-ami-sagemaker-inference-gpu-3-1", "al2-ami-sagemaker-batch-gpu-535"),
        ((12, 4), "ml.p5.48xlarge", "", "al2-ami-sagemaker-batch-gpu-535"),
        ((12, 4), "ml.unknown.xlarge", "al2-ami-sagemaker-inference-gpu-3-1", "al2-ami-sagemaker-batch-gpu-535"),
        ((13, 2), "", "al2023-ami-sagemaker-inference-gpu-4-1", ""),
        ((14, 0), "ml.g5.xlarge", "", ""),
    ],
)
def test_ami_of_instance(cuda: gpu_hosts.Version, instance: str, endpoint: str, transform: str) -> None:
    assert (gpu_hosts.endpoint_ami(cuda, instance), gpu_hosts.transform_ami(cuda, instance)) == (endpoint, transform)


def cell(profile: str, name: str) -> str:
    """The cell in README's table for a profile on a family's endpoints."""
    cuda, host = gpu_hosts.PROFILES[profile], gpu_hosts.FAMILIES[name]
    if not gpu_hosts.suits(cuda, host.capability):
        return "no"
    ami = gpu_hosts.endpoint_ami(cuda, f"ml.{name}.xlarge")
    return f"AMI {AMI_DRIVERS[ami]}" if ami else "as it is"


def test_readme_table_equals_families() -> None:
    text = (pins.ROOT / "README.md").read_text()
    rows = {}
    for line in re.findall(r"^\| (`[a-z0-9-]+`.*) \|$", text, re.MULTILINE):
        first, *cells = line.split(" | ")
        names = re.findall(r"`([a-z0-9-]+)`", first)
        if set(names) <= set(gpu_hosts.FAMILIES):
            rows |= dict.fromkeys(names, cells)
    assert rows == {
        name: [str(host.endpoint or "not published"), *(cell(profile, name) for profile in gpu_hosts.PROFILES)]
        for name, host in gpu_hosts.FAMILIES.items()
    }
    for driver, ami in gpu_hosts.ENDPOINT_AMIS.items():
        assert re.search(rf"AMI {driver} is\s+`{ami}`", text)
    assert gpu_hosts.TRANSFORM_AMIS[535] in text


def test_bf16_needs_capability_8() -> None:
    capabilities = ((7, 0), (7, 5), (8, 0), (9, 0), (12, 0))
    assert [gpu_hosts.supports_bf16(each) for each in capabilities] == [False, False, True, True, True]
