"""Describes the machine: GPUs, driver and versions, from torch and nvidia-smi."""

import os
import platform
from typing import Any

from berth.runtime.gpu.bench.collectives import nvidia_smi
from berth.runtime.software import installed


def describe(device: str) -> dict[str, Any]:
    """Plain types, for the JSON: `versions`, `devices` (name, capability, memory in bytes) and the host's CPUs.

    Versions of missing software are None; `devices` is empty if torch can't use a GPU.
    """
    import torch

    cuda = device == "cuda" and torch.cuda.is_available()
    devices = []
    for index in range(torch.cuda.device_count() if cuda else 0):
        properties = torch.cuda.get_device_properties(index)
        capability = f"{properties.major}.{properties.minor}"
        devices.append({"name": properties.name, "capability": capability, "memory_bytes": properties.total_memory})
    return {
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else None,  # type: ignore[no-untyped-call]
            "cudnn": torch.backends.cudnn.version() if torch.version.cuda else None,  # type: ignore[no-untyped-call]
            "driver": next(iter(nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").split()), None),
            "triton": installed("triton") or None,
            "transformers": installed("transformers") or None,
            "python": platform.python_version(),
        },
        "devices": devices,
        "cpus": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
    }


def title(machine: dict[str, Any]) -> str:
    """One line: the GPUs and the versions that decide how fast they are."""
    names = [each["name"] for each in machine["devices"]]
    kinds = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)] or [f"{machine['cpus']} CPUs"]
    known = {name: version for name, version in machine["versions"].items() if version is not None}
    return ", ".join([*kinds, *(f"{name} {version}" for name, version in known.items())])
