"""transformers' Trainer in a job that asks for partitions of SageMaker's model parallel library (smp).

Trainer 5 still has the smp code path, but it is broken with every implementation of the library:
- The scheduler needs an optimizer that does not exist yet (trainer.py of 5.23, delay_optimizer_creation).
- accelerate distributes the rows, and treats the ranks of a pipeline as replicas: with two partitions no rank would see
  half of the rows.
- accelerate clips gradients by the norm of one partition only.

So by default Trainer 5 trains data-parallel, and the log says so; with BERTH_SMDISTRIBUTED=open it uses the smp path,
with these faults patched. Trainer before 5 uses the smp path unchanged. Without a GPU both use the CPU as device.
berth.train.startup.start_hook calls the functions after the import of the modules.
"""

import importlib
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from berth.runtime.log import PREFIX
from berth.train.startup.after_import import wrap
from berth.train.startup.smdistributed_finder import OPEN, VARIABLE, choice

NOT_USED = (
    f"partitions are not used: Trainer of transformers 5 trains data-parallel, the whole model in each rank; set "
    f"{VARIABLE} to open to split the model"
)


def after_import_utils(module: ModuleType, environ: Mapping[str, str] = os.environ) -> None:
    """Patch transformers.utils.import_utils, before other modules import the function from it: in transformers 5
    is_sagemaker_mp_enabled returns False unless BERTH_SMDISTRIBUTED is open.
    """
    if not _is_transformers_5() or choice(environ) == OPEN:
        return
    original = getattr(module, "is_sagemaker_mp_enabled", None)
    if original is None:
        return

    def is_sagemaker_mp_enabled() -> bool:
        return False

    is_sagemaker_mp_enabled.original = original  # type: ignore[attr-defined]
    module.is_sagemaker_mp_enabled = is_sagemaker_mp_enabled  # type: ignore[attr-defined]


def after_training_arguments(module: ModuleType, environ: Mapping[str, str] = os.environ) -> None:
    """Patch transformers.training_args: log that partitions are not used, or let the smp path use the CPU."""
    arguments: Any = getattr(module, "TrainingArguments", None)
    enabled: Any = getattr(module, "is_sagemaker_mp_enabled", None)
    if arguments is None or enabled is None:
        return
    if (original := getattr(enabled, "original", None)) is not None:
        if original() and environ.get("RANK", "0") == "0":
            _warn_once(arguments)
    elif "_setup_devices" in arguments.__dict__ and enabled():
        _use_cpu(arguments)


def after_trainer(module: ModuleType) -> None:
    """Patch transformers.trainer 5 and later: create the optimizer before the scheduler, distribute rows and gather
    metrics over replicas instead of ranks, and clip gradients by the norm of all partitions.
    """
    trainer: Any = getattr(module, "Trainer", None)
    enabled: Any = getattr(module, "is_sagemaker_mp_enabled", None)
    if trainer is None or enabled is None or not _is_transformers_5() or not enabled():
        return

    @wrap(trainer, "create_scheduler")
    def create_scheduler(original: Any, self: Any, num_training_steps: int, optimizer: Any = None) -> Any:
        if optimizer is None and self.optimizer is None:
            self.create_optimizer()
            optimizer = self.optimizer
        return original(self, num_training_steps, optimizer)

    @wrap(trainer, "create_accelerator_and_postprocess")
    def create_accelerator_and_postprocess(original: Any, self: Any) -> None:
        original(self)
        _patch_accelerator(self.accelerator)


def _patch_accelerator(accelerator: Any) -> None:
    """Make accelerate distribute rows and gather results over replicas, and clip over all partitions."""
    import torch
    from accelerate.state import PartialState
    from accelerate.utils import recursively_apply

    smp: Any = importlib.import_module("smdistributed.modelparallel.torch")  # ours: smdistributed_finder

    for state in (PartialState(), accelerator.state):
        state.num_processes, state.process_index = smp.dp_size(), smp.dp_rank()

    def gather(tensors: Any) -> Any:
        def gather_tensor(tensor: Any) -> Any:
            parts = smp.allgather(tensor.detach().reshape(-1, *tensor.shape[1:]).cpu(), smp.DP_GROUP)
            return torch.cat(parts).to(tensor.device)

        return recursively_apply(gather_tensor, tensors, error_on_other_type=True)

    def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        norm: torch.Tensor = smp.state.model.clip_grad_norm_(max_norm, norm_type)
        return norm

    accelerator.gather, accelerator.clip_grad_norm_ = gather, clip_grad_norm_


def _is_transformers_5() -> bool:
    """Whether the imported transformers is version 5 or later."""
    version = str(getattr(sys.modules.get("transformers"), "__version__", ""))
    major = version.partition(".")[0]
    return major.isdigit() and int(major) >= 5


def _warn_once(arguments: Any) -> None:
    """Log it with the first TrainingArguments: a script may import transformers only for its models."""

    @wrap(arguments, "__post_init__")
    def first(original: Any, self: Any) -> None:
        arguments.__post_init__ = original
        print(f"{PREFIX}{NOT_USED}", flush=True)
        original(self)


def _use_cpu(arguments: Any) -> None:
    """Use the CPU if there is no GPU: the smp path always returns the device `cuda` with the rank's number."""
    original = arguments.__dict__["_setup_devices"]

    def setup_devices(self: Any) -> Any:
        import torch

        if torch.cuda.is_available():
            return original.__get__(self, type(self))
        self._n_gpu = 0
        self.distributed_state = None
        return torch.device("cpu")

    arguments._setup_devices = property(setup_devices)
