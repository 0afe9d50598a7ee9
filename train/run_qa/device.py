"""What a job's settings become on the devices that its ranks have. Pure: settings in, settings and lines out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth.contract.hyperparameters import HyperparameterError

NUMBER_KINDS = {
    "fp16": (5, 3),
    "fp16_full_eval": (5, 3),
    "bf16": (8, 0),
    "bf16_full_eval": (8, 0),
    "tf32": (8, 0),
}
"""Lowest compute capability that supports each type; torch would emulate bf16 on older GPUs, slowly.
Source: the table "Feature Support per Compute Capability" of NVIDIA's CUDA C++ Programming Guide.
"""


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """What this rank finds: hardware, channels, and what is installed."""

    world_size: int = 1
    cuda: bool = False
    capability: tuple[int, int] | None = None  # the GPU's compute capability
    backend: str = ""  # what the launcher chose: gloo, nccl, smddp or nothing
    channels: frozenset[str] = frozenset()
    keeps_checkpoints: bool = False  # the checkpoint folder is there, so somebody wants it filled
    compiler: bool = False
    reporters: frozenset[str] = frozenset()


def fit_device(training: dict[str, Any], found: RankEnvironment, warnings: list[str]) -> None:
    """Settings that GPUs or CPUs need, and none that they can't have."""
    on_cpu = not found.cuda or training.get("use_cpu", False)
    if on_cpu:
        # Without it transformers 5 starts no DDP on a CPU: every rank would train alone, without a word.
        training["use_cpu"] = True
        training["dataloader_pin_memory"] = False
        for name in ("fp16", "fp16_full_eval", "tf32"):
            if training.pop(name, False):
                warnings.append(f"{name} needs a GPU, and there is none in use: the job goes on with 32-bit numbers")
        training.pop("fsdp_config", None)
        if training.pop("fsdp", False):
            warnings.append(
                "fsdp has no effect: accelerate does not support it on CPU; every rank holds the whole model"
            )
    else:
        _check_numbers(training, found)
    if on_cpu or not found.compiler:
        # A backend or a mode alone switches it on as well.
        requested = [
            training.pop(name, False) for name in ("torch_compile", "torch_compile_backend", "torch_compile_mode")
        ]
        if any(requested):
            # On a CPU it would take a C++ compiler and torch's headers, which no image has.
            lack = "a GPU, and there is none in use" if on_cpu else "a C compiler for Triton, and this image has none"
            warnings.append(f"torch_compile needs {lack}: the job goes on without it")


def _check_numbers(training: Mapping[str, Any], found: RankEnvironment) -> None:
    """Raises HyperparameterError where this GPU lacks a kind of numbers that is asked for."""
    for name, least in NUMBER_KINDS.items():
        if training.get(name) and found.capability is not None and found.capability < least:
            has, needed = (".".join(map(str, capability)) for capability in (found.capability, least))
            instead = "use fp16, or leave it out" if least > NUMBER_KINDS["fp16"] else "leave it out"
            raise HyperparameterError(
                f"{name} needs a GPU of compute capability {needed} or newer, and this host's has {has}: {instead}."
            )


def choose_backend(training: dict[str, Any], found: RankEnvironment, warnings: list[str]) -> str:
    """The process group's backend. run_qa starts the group itself, so that ddp_timeout holds on a CPU as well, and
    Trainer takes the group as it is: neither transformers nor accelerate needs to know the backend's name.
    """
    requested = training.pop("ddp_backend", None)
    if requested == "smddp" and found.backend != "smddp":
        other = "gloo" if training.get("use_cpu") else found.backend or "nccl"
        warnings.append(f"ddp_backend smddp is the launcher's to choose (BERTH_DISTRIBUTION=smddp): {other} is used")
        requested = None
    # The launcher has tried the library, on this hardware: only use_cpu on a host with a GPU goes before it.
    if found.backend == "smddp" and requested in (None, "smddp") and not (found.cuda and training.get("use_cpu")):
        return "smddp"
    if training.get("use_cpu"):
        if requested not in (None, "gloo"):
            warnings.append(f"ddp_backend {requested} is not there on a CPU: gloo is used")
        return "gloo"
    return requested or found.backend or "nccl"
