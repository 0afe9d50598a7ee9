"""Which GPUs and NVIDIA drivers SageMaker's hosts have, which CUDA needs which, and which AMI brings a newer driver.

The one table for the sentence with which an image refuses a host (berth/runtime/gpu), for the deployment that a push
prints (ecr/snippet) and for README. Read in November 2026, not tried on AWS: NVIDIA's table of minimum drivers
(docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html), the architectures that torch's wheels are
built for (torch.cuda.get_arch_list()), SageMaker's guide on drivers (dg/inference-gpu-drivers.html), and its API's
InferenceAmiVersion and TransformAmiVersion.
"""

from dataclasses import dataclass

Version = tuple[int, int]
"""Of CUDA, or a compute capability."""

PROFILES: dict[str, Version] = {"cu130": (13, 0), "cu124": (12, 4)}
"""The kit's profiles by the CUDA of their torch, the newest first."""

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
"""A driver's branch, as users know it, by the newest CUDA that it knows."""

ENDPOINT_AMIS: dict[int, str] = {
    550: "al2-ami-sagemaker-inference-gpu-3-1",
    580: "al2023-ami-sagemaker-inference-gpu-4-1",
}
"""Values of ProductionVariant.InferenceAmiVersion by their driver, oldest first."""

TRANSFORM_AMIS: dict[int, str] = {535: "al2-ami-sagemaker-batch-gpu-535"}
"""Values of TransformResources.TransformAmiVersion by their driver; there is none with a newer one."""


@dataclass(frozen=True, slots=True)
class HostFamily:
    """A family of instances. endpoint, transform: the driver of a host for which no AMI is named, None where AWS's page
    does not say it.
    """

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
    "p4d": HostFamily("A100", (8, 0), 470, 470),
    "p4de": HostFamily("A100", (8, 0), 470, 470),
    "p5": HostFamily("H100", (9, 0), 535),
    "p5e": HostFamily("H200", (9, 0), 550),
    "p5en": HostFamily("H200", (9, 0), 550),
    "p6-b200": HostFamily("B200", (10, 0)),
    "p6-b300": HostFamily("B300", (10, 3)),
}
"""By the middle of an instance's name. p6e-gb200 is arm64: no image of the kit runs there."""


def minimum(cuda: Version) -> Version:
    """The CUDA that a driver must know to run any minor version of this one's major: 12.0 for 12.4 (driver 525)."""
    return (cuda[0], 0)


def needed_driver(cuda: Version) -> int | None:
    """The branch of the oldest driver that runs this CUDA; None where the table does not have it."""
    return DRIVERS.get(minimum(cuda))


def architectures(cuda: Version) -> tuple[Version, Version | None]:
    """The least and the most compute capability that torch's wheels for this CUDA are built for; None: no upper end."""
    if cuda[0] >= 13:
        return (7, 5), None  # CUDA 13 has dropped Maxwell, Pascal and Volta
    return (5, 0), None if cuda >= (12, 8) else (9, 0)  # 12.8 brought Blackwell


def suits(cuda: Version, capability: Version) -> bool:
    """Whether torch's wheels for this CUDA are built for a GPU."""
    least, most = architectures(cuda)
    return capability >= least and (most is None or capability <= most)


def family(instance: str) -> HostFamily | None:
    """Of an instance type such as ml.g5.xlarge; None for one that the table does not have."""
    return FAMILIES.get(instance.removeprefix("ml.").partition(".")[0])


def endpoint_ami(cuda: Version, instance: str = "") -> str:
    """The AMI to name for an endpoint; empty if the instance's default has a driver that is new enough, or none has.

    Where the default is not known, one is named.
    """
    host = family(instance)
    return _ami(cuda, host.endpoint if host else None, ENDPOINT_AMIS)


def transform_ami(cuda: Version, instance: str = "") -> str:
    """The same for a batch transform."""
    host = family(instance)
    return _ami(cuda, host.transform if host else None, TRANSFORM_AMIS)


def can_transform(cuda: Version) -> bool:
    """Whether a host of batch transforms has a driver for this CUDA, by an AMI if need be."""
    return bool(_ami(cuda, None, TRANSFORM_AMIS))


def _ami(cuda: Version, default: int | None, amis: dict[int, str]) -> str:
    """The newest of the CUDA's major, for that is the one that its torch is most often used with."""
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
