"""The hardware's peak performance: a chip's dense matrix product, and the link between GPUs. Pure.

The peaks are those of dense 16-bit products with 32-bit sums, from NVIDIA's datasheets. These print the sparse value
first; the dense one is half of it. A chip that is not listed is measured without a limit.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip's peak in TFLOP/s and its source. A matrix product is slow if it reaches less than `enough` of the peak.

    Cards that get power only from the slot (70 W) can't hold their clock; two fifths of the peak are a good result.
    """

    pattern: str
    tflops: float
    source: str
    enough: float = 0.6


# Patterns match the driver's name of the chip without "NVIDIA" and "Tesla"; the first match is used.
CHIPS = (
    Chip(r"V100-PCIE", 112.0, "NVIDIA V100 datasheet (PCIe)"),
    Chip(r"V100-SXM", 125.0, "NVIDIA V100 datasheet (SXM2)"),
    Chip(r"T4\b", 65.0, "NVIDIA T4 datasheet", enough=0.3),
    Chip(r"A10G\b", 70.0, "NVIDIA A10G datasheet (Amazon EC2 G5)"),
    Chip(r"A10\b", 125.0, "NVIDIA A10 datasheet"),
    Chip(r"A100\b", 312.0, "NVIDIA A100 datasheet"),
    Chip(r"L4\b", 121.0, "NVIDIA L4 datasheet", enough=0.3),
    Chip(r"L40S\b", 362.0, "NVIDIA L40S datasheet"),
    Chip(r"H100 PCIe", 756.0, "NVIDIA H100 datasheet (PCIe)"),
    Chip(r"H(100|200) NVL", 835.0, "NVIDIA H100 and H200 datasheets (NVL)"),
    Chip(r"H100 80GB HBM3", 989.0, "NVIDIA H100 datasheet (SXM)"),
    Chip(r"H200\b", 989.0, "NVIDIA H200 datasheet (SXM)"),
    Chip(r"B200\b", 2250.0, "NVIDIA HGX B200 datasheet"),
)


def chip(name: str) -> Chip | None:
    """The chip with the driver's `name`; None for an unknown chip and for a part of one (MIG)."""
    if " MIG " in name:
        return None
    short = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"^NVIDIA\s+", "", name))
    return next((each for each in CHIPS if re.match(each.pattern, short)), None)


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s over each rank's link in an all-reduce of `size` bytes: 2(n-1)/n · size / time.

    A ring sends and receives that many bytes over every link, so the figure can be compared with the link's speed for
    any number of ranks (PERFORMANCE.md of NVIDIA/nccl-tests). A switch that computes sums itself (NVLink SHARP) moves
    less data, so the figure may exceed the link's speed. 0 for one rank, which sends nothing.
    """
    return 2 * (ranks - 1) / ranks * size / seconds / 1e9


def nvlink(status: str) -> float | None:
    """What one GPU of this host can send over NVLink, in GB/s (10^9 bytes); None if not every GPU has links.

    status: the output of `nvidia-smi nvlink -s`: a line per GPU, then the speed of each of its links in one direction.
    The slowest GPU counts. If only pairs of GPUs are joined by bridges, the rest communicates over PCIe; this function
    can't see that, so such a host is reported as slow.
    """
    gpus = re.split(r"^GPU \d+:", status, flags=re.MULTILINE)[1:]
    return min((sum(map(float, re.findall(r"Link \d+: ([\d.]+) GB/s", gpu))) for gpu in gpus), default=0) or None
