"""transformers' Trainer in a job that asks for partitions of SageMaker's model parallel library.

That of transformers 5 has the library's path and can't go it, whichever implementation is there: it makes no optimizer
before its scheduler asks for one (trainer.py of 5.23, delay_optimizer_creation), and it leaves sharing out rows to
accelerate, which takes the ranks of a pipeline for replicas: half of the rows, with two partitions, no rank would see;
and clipping gradients, of which accelerate sees one partition's. So by default it trains data-parallel and says so;
BERTH_SMDISTRIBUTED=open takes the path, mended. One of before 5 goes it as it is. Without a GPU the devices of that
path are the CPU in either. Called by berth.train.startup.start_hook once a program has imported the modules.
"""

import functools
import importlib
import os
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from berth.runtime.log import PREFIX
from berth.train.startup.smdistributed_finder import OPEN, VARIABLE, choice

NOT_USED = (
    f"partitions are not used: Trainer of transformers 5 trains data-parallel, the whole model in each rank; set "
    f"{VARIABLE} to open to split the model"
)


def after_import_utils(module: ModuleType, environ: Mapping[str, str] = os.environ) -> None:
    """For transformers.utils.import_utils, before others take the function from it: transformers 5 is told that there
    is no model parallel library, unless the kit's is asked for.
    """
    if not _since_5() or choice(environ) == OPEN:
        return
    asked = getattr(module, "is_sagemaker_mp_enabled", None)
    if asked is None:
        return

    def is_sagemaker_mp_enabled() -> bool:
        return False

    is_sagemaker_mp_enabled.asked = asked  # type: ignore[attr-defined]
    module.is_sagemaker_mp_enabled = is_sagemaker_mp_enabled  # type: ignore[attr-defined]


def after_training_arguments(module: ModuleType, environ: Mapping[str, str] = os.environ) -> None:
    """For transformers.training_args: says what is not used, and gives the model parallel path the CPU."""
    arguments: Any = getattr(module, "TrainingArguments", None)
    enabled: Any = getattr(module, "is_sagemaker_mp_enabled", None)
    if arguments is None or enabled is None:
        return
    if (asked := getattr(enabled, "asked", None)) is not None:
        if asked() and environ.get("RANK", "0") == "0":
            _say_once(arguments)
    elif "_setup_devices" in arguments.__dict__ and enabled():
        _on_the_cpu(arguments)


def after_trainer(module: ModuleType) -> None:
    """For transformers.trainer of 5 and later: its scheduler finds the optimizer that nobody has made, its rows and its
    metrics go by replicas, not by ranks, and it clips gradients by the norm of all partitions.
    """
    trainer: Any = getattr(module, "Trainer", None)
    enabled: Any = getattr(module, "is_sagemaker_mp_enabled", None)
    if trainer is None or enabled is None or not _since_5() or not enabled():
        return
    original = trainer.create_scheduler

    @functools.wraps(original)
    def create_scheduler(self: Any, num_training_steps: int, optimizer: Any = None) -> Any:
        if optimizer is None and self.optimizer is None:
            self.create_optimizer()
            optimizer = self.optimizer
        return original(self, num_training_steps, optimizer)

    trainer.create_scheduler = create_scheduler
    create_accelerator = trainer.create_accelerator_and_postprocess

    @functools.wraps(create_accelerator)
    def create_accelerator_and_postprocess(self: Any) -> None:
        create_accelerator(self)
        _teach(self.accelerator)

    trainer.create_accelerator_and_postprocess = create_accelerator_and_postprocess


def _teach(accelerator: Any) -> None:
    """Has accelerate share out rows, and gather what evaluation found, over replicas; and clip over partitions."""
    import torch
    from accelerate.state import PartialState
    from accelerate.utils import recursively_apply

    smp: Any = importlib.import_module("smdistributed.modelparallel.torch")  # whose it is, the finder says

    for state in (PartialState(), accelerator.state):
        state.num_processes, state.process_index = smp.dp_size(), smp.dp_rank()

    def gather(tensors: Any) -> Any:
        def of_all(tensor: Any) -> Any:
            parts = smp.allgather(tensor.detach().reshape(-1, *tensor.shape[1:]).cpu(), smp.DP_GROUP)
            return torch.cat(parts).to(tensor.device)

        return recursively_apply(of_all, tensors, error_on_other_type=True)

    def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        norm: torch.Tensor = smp.state.model.clip_grad_norm_(max_norm, norm_type)
        return norm

    accelerator.gather, accelerator.clip_grad_norm_ = gather, clip_grad_norm_


def _since_5() -> bool:
    version = str(getattr(sys.modules.get("transformers"), "__version__", ""))
    major = version.partition(".")[0]
    return major.isdigit() and int(major) >= 5


def _say_once(arguments: Any) -> None:
    """With the first arguments that are made, for a script may import transformers for its models alone."""
    original = arguments.__post_init__

    @functools.wraps(original)
    def first(self: Any) -> None:
        arguments.__post_init__ = original
        print(f"{PREFIX}{NOT_USED}", flush=True)
        original(self)

    arguments.__post_init__ = first


def _on_the_cpu(arguments: Any) -> None:
    """The path names `cuda` and the rank's number, without asking whether there is one."""
    original = arguments.__dict__["_setup_devices"]

    def setup_devices(self: Any) -> Any:
        import torch

        if torch.cuda.is_available():
            return original.__get__(self, type(self))
        self._n_gpu = 0
        self.distributed_state = None
        return torch.device("cpu")

    arguments._setup_devices = property(setup_devices)
