"""GPUs and NVIDIA drivers of SageMaker's hosts, the driver and GPU that each CUDA needs, and AMIs with a newer driver.

Used by an image that checks its host (berth/runtime/gpu), by the deployment that a push prints (ecr/snippet) and by the
docs. Sources, read in November 2026 and not tried on AWS: NVIDIA's table of minimum drivers
(docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html), the architectures of torch's wheels
(torch.cuda.get_arch_list()), SageMaker's guide on drivers (dg/inference-gpu-drivers.html), and InferenceAmiVersion and
TransformAmiVersion of its API.
"""

from dataclasses import dataclass

Version = tuple[int, int]
"""A CUDA version or a compute capability."""

PROFILES: dict[str, Version] = {"cu130": (13, 0), "cu124": (12, 4)}
"""Profile → the CUDA version of its torch, the newest first."""

DRIVERS: dict[Version, int] = {
    (11, 0): 450,
    (11, 2): 460,
    (11, 4): 470,
    (11, 6): 510,
    (11, 7): 515,
    (12, 0): 525,
    (12, 1): 530,
    (12, 2): 535,
    (12, 3): 545,
    (12, 4): 550,
    (12, 5): 555,
    (12, 6): 560,
    (12, 7): 565,
    (12, 8): 570,
    (12, 9): 575,
    (13, 0): 580,
}
"""CUDA version → the branch of the driver (such as 550) whose newest CUDA it is."""

ENDPOINT_AMIS: dict[int, str] = {
    550: "al2-ami-sagemaker-inference-gpu-3-1",
    580: "al2023-ami-sagemaker-inference-gpu-4-1",
}
"""Driver branch → value of ProductionVariant.InferenceAmiVersion, oldest first."""

TRANSFORM_AMIS: dict[int, str] = {535: "al2-ami-sagemaker-batch-gpu-535"}
"""Driver branch → value of TransformResources.TransformAmiVersion; AWS has none with a newer driver."""


@dataclass(frozen=True, slots=True)
class HostFamily:
    """A family of instances. endpoint, transform: the driver of the default AMI, None if AWS does not document it."""

    gpu: str
    capability: Version
    endpoint: int | None = None
    transform: int | None = None


FAMILIES: dict[str, HostFamily] = {
    "g4dn": HostFamily("T4", (7, 5), 470, 470),
    "g5": HostFamily("A10G", (8, 6), 470, 470),
    "g6": HostFamily("L4", (8, 9), 535),
    "g6e": HostFamily("L40S", (8, 9)),
    "g7e": HostFamily("RTX PRO 6000", (12, 0)),
    "p3": HostFamily("V100", (7, 0)),
    "p4d": HostFamily("A100", (8, 0), 470, 470),
    "p4de": HostFamily("A100", (8, 0), 470, 470),
    "p5": HostFamily("H100", (9, 0), 535),
    "p5e": HostFamily("H200", (9, 0), 550),
    "p5en": HostFamily("H200", (9, 0), 550),
    "p6-b200": HostFamily("B200", (10, 0)),
    "p6-b300": HostFamily("B300", (10, 3)),
}
"""Family, the middle part of an instance type → host. p6e-gb200 is missing because it is arm64: no image runs there."""


def minimum(cuda: Version) -> Version:
    """The CUDA that a driver must support to run any minor version of the same major: 12.0 for 12.4 (driver 525)."""
    return (cuda[0], 0)


def needed_driver(cuda: Version) -> int | None:
    """The branch of the oldest driver that runs this CUDA; None if DRIVERS does not have it."""
    return DRIVERS.get(minimum(cuda))


def architectures(cuda: Version) -> tuple[Version, Version | None]:
    """The lowest and highest compute capability of torch's wheels for this CUDA; None: no upper limit."""
    if cuda[0] >= 13:
        return (7, 5), None  # CUDA 13 dropped Maxwell, Pascal and Volta
    return (5, 0), None if cuda >= (12, 8) else (9, 0)  # CUDA 12.8 added Blackwell


def suits(cuda: Version, capability: Version) -> bool:
    """Whether torch's wheels for this CUDA support a GPU of this compute capability."""
    least, most = architectures(cuda)
    return capability >= least and (most is None or capability <= most)


def supports_bf16(capability: Version) -> bool:
    """Whether the tensor cores of a GPU of this compute capability support bfloat16: V100 (7.0) and T4 (7.5) do not."""
    return capability >= (8, 0)


def family(instance: str) -> HostFamily | None:
    """The family of an instance type such as ml.g5.xlarge; None if FAMILIES does not have it."""
    return FAMILIES.get(instance.removeprefix("ml.").partition(".")[0])


def endpoint_ami(cuda: Version, instance: str = "") -> str:
    """The AMI to request for an endpoint; empty if the default's driver is new enough, or if no AMI's driver is.

    If the default's driver is unknown, an AMI is returned.
    """
    host = family(instance)
    return _ami(cuda, host.endpoint if host else None, ENDPOINT_AMIS)


def transform_ami(cuda: Version, instance: str = "") -> str:
    """The AMI to request for a batch transform, by the same rules as `endpoint_ami`."""
    host = family(instance)
    return _ami(cuda, host.transform if host else None, TRANSFORM_AMIS)


def can_transform(cuda: Version) -> bool:
    """Whether an AMI for batch transforms has a driver for this CUDA."""
    return bool(_ami(cuda, None, TRANSFORM_AMIS))


def _ami(cuda: Version, default: int | None, amis: dict[int, str]) -> str:
    """The AMI with the newest driver for the same major CUDA version: torch is most often used with that one."""
    needed = needed_driver(cuda)
    if needed is None or (default is not None and default >= needed):
        return ""
    next_major = needed_driver((cuda[0] + 1, 0))
    fitting = [name for driver, name in amis.items() if driver >= needed and (not next_major or driver < next_major)]
    return fitting[-1] if fitting else ""


def parse(text: str) -> Version:
    """(12, 4) for `12.4` or `12.4.1`."""
    major, _, rest = text.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


def dotted(version: Version) -> str:
    """`12.4` for (12, 4)."""
    return f"{version[0]}.{version[1]}"
