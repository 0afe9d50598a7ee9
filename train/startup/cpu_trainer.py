"""Makes TrainingArguments and Trainer of transformers before 5 use the CPU if torch can use no GPU.

Without it transformers 4.26 uses NCCL and `cuda:0` if there are several ranks. It also refuses fp16 without a GPU, and
so most scripts of that time. Only transformers is patched, not what a program itself puts on a device.
berth.train.startup.start_hook calls the functions after the import of transformers.training_args and
transformers.trainer.
"""

import os
from collections.abc import MutableMapping
from types import ModuleType
from typing import Any

from berth.runtime.log import PREFIX
from berth.train.startup.after_import import wrap

_GPU_ONLY = ("fp16", "fp16_full_eval", "tf32")
"""The arguments that TrainingArguments refuses without a GPU."""
_CPU_BACKENDS = ("gloo", "mpi", "ccl")


def after_training_arguments(module: ModuleType, environ: MutableMapping[str, str] = os.environ) -> None:
    """Patch transformers.training_args after its import. Skips transformers 5, which uses the CPU by default, and a
    user's own module of that name.
    """
    arguments: Any = getattr(module, "TrainingArguments", None)
    if not hasattr(arguments, "no_cuda"):
        return

    @wrap(arguments, "__post_init__")
    def prepared(original: Any, self: Any) -> None:
        import torch

        if not torch.cuda.is_available():
            off = take_cpu(self, environ)
            if off and environ.get("RANK", "0") == "0":
                verb = "is" if len(off) == 1 else "are"
                print(f"{PREFIX}{' and '.join(off)} {verb} off: this host has no GPU that torch can use", flush=True)
        original(self)


def after_trainer(module: ModuleType) -> None:
    """Patch transformers.trainer before version 5 after its import: in a job with smdistributed it always passes the
    rank's GPU to DDP, and DDP fails if that does not exist.
    """
    trainer: Any = getattr(module, "Trainer", None)
    arguments = getattr(module, "TrainingArguments", None)
    if not hasattr(trainer, "_wrap_model") or not hasattr(arguments, "no_cuda"):
        return

    @wrap(trainer, "_wrap_model")
    def wrapped(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if torch.cuda.is_available():
            return original(self, *args, **kwargs)
        # Patch __init__, not the class: accelerate checks isinstance of this class meanwhile.
        ddp = torch.nn.parallel.DistributedDataParallel
        ddp_init = ddp.__init__

        def without_devices(model: Any, module: Any, **options: Any) -> None:
            ddp_init(model, module, **{**options, "device_ids": None, "output_device": None})

        ddp.__init__ = without_devices  # type: ignore[method-assign,assignment]
        try:
            return original(self, *args, **kwargs)
        finally:
            ddp.__init__ = ddp_init  # type: ignore[method-assign]


def take_cpu(arguments: Any, environ: MutableMapping[str, str]) -> list[str]:
    """Set TrainingArguments and the environment for a training on CPUs; returns the arguments that were turned off."""
    # From 4.34 on no_cuda is deprecated and causes a warning.
    setattr(arguments, "use_cpu" if hasattr(arguments, "use_cpu") else "no_cuda", True)
    # From 4.30 on accelerate chooses the backend: gloo.
    if hasattr(arguments, "xpu_backend") and arguments.xpu_backend not in _CPU_BACKENDS:
        arguments.xpu_backend = "gloo"
    if environ.get("WORLD_SIZE", "1") == "1":
        # A single rank started by mpirun also forms a process group, which needs a leader's address.
        environ.setdefault("MASTER_ADDR", "127.0.0.1")
    off = [name for name in _GPU_ONLY if getattr(arguments, name, None)]
    for name in off:
        setattr(arguments, name, None if name == "tf32" else False)
    return off
