"""Fits a job's settings to the devices of its ranks: GPUs or CPUs. Pure: settings in, settings and log lines out."""

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
    """What this rank can use: hardware, channels and installed packages."""

    world_size: int = 1
    cuda: bool = False
    capability: tuple[int, int] | None = None  # the GPU's compute capability
    backend: str = ""  # the launcher's choice: gloo, nccl, smddp; empty without the launcher
    channels: frozenset[str] = frozenset()
    keeps_checkpoints: bool = False  # the job configures checkpoints, or their folder exists
    compiler: bool = False
    reporters: frozenset[str] = frozenset()


def fit_device(training: dict[str, Any], env: RankEnvironment, warnings: list[str]) -> None:
    """Add the settings that GPUs or CPUs need, and remove those that they don't support, with a warning for each."""
    on_cpu = not env.cuda or training.get("use_cpu", False)
    if on_cpu:
        # Without use_cpu transformers 5 does not use DDP on a CPU: every rank would train alone, without a warning.
        training["use_cpu"] = True
        training["dataloader_pin_memory"] = False
        for name in ("fp16", "fp16_full_eval", "tf32"):
            if training.pop(name, False):
                warnings.append(f"{name} needs a GPU, and this job uses none: the job continues in fp32")
        training.pop("fsdp_config", None)
        if training.pop("fsdp", False):
            warnings.append(
                "fsdp has no effect: accelerate does not support it on CPU; every rank holds the whole model"
            )
    else:
        _check_numbers(training, env)
    if on_cpu or not env.compiler:
        # Each of the three turns torch.compile on.
        requested = [
            training.pop(name, False) for name in ("torch_compile", "torch_compile_backend", "torch_compile_mode")
        ]
        if any(requested):
            # On a CPU it needs a C++ compiler and torch's headers, which no image has.
            missing = "a GPU, and this job uses none" if on_cpu else "a C compiler for Triton, and this image has none"
            warnings.append(f"torch_compile needs {missing}: the job continues without it")


def _check_numbers(training: Mapping[str, Any], env: RankEnvironment) -> None:
    """Raises HyperparameterError if this GPU does not support a requested type of numbers."""
    for name, least in NUMBER_KINDS.items():
        if training.get(name) and env.capability is not None and env.capability < least:
            actual, needed = (".".join(map(str, capability)) for capability in (env.capability, least))
            instead = "use fp16, or leave it out" if least > NUMBER_KINDS["fp16"] else "leave it out"
            raise HyperparameterError(
                f"{name} needs a GPU of compute capability {needed} or newer, and this host's has {actual}: {instead}."
            )


def choose_backend(training: dict[str, Any], env: RankEnvironment, warnings: list[str]) -> str:
    """The process group's backend.

    run_qa starts the group itself, so that ddp_timeout also applies on a CPU. Trainer uses the existing group, so
    neither transformers nor accelerate needs to know the backend's name.
    """
    requested = training.pop("ddp_backend", None)
    if requested == "smddp" and env.backend != "smddp":
        other = "gloo" if training.get("use_cpu") else env.backend or "nccl"
        warnings.append(f"only the launcher can set ddp_backend smddp (BERTH_DISTRIBUTION=smddp): using {other}")
        requested = None
    # The launcher has tested the library on this hardware; only use_cpu on a host with a GPU overrides it.
    if env.backend == "smddp" and requested in (None, "smddp") and not (env.cuda and training.get("use_cpu")):
        return "smddp"
    if training.get("use_cpu"):
        if requested not in (None, "gloo"):
            warnings.append(f"ddp_backend {requested} does not work on a CPU: using gloo")
        return "gloo"
    return requested or env.backend or "nccl"
