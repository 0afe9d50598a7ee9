"""transformers before 5 on a host without a GPU that torch can use: has its TrainingArguments and Trainer take the CPU.

By itself 4.26 takes NCCL and `cuda:0` as soon as it is one of several ranks, refuses fp16 without a GPU, and so most
scripts of that time. What a program itself puts on a device stays its own. Called by berth.train.startup.start_hook
once a program has imported transformers.training_args.
"""

import functools
import os
from collections.abc import MutableMapping
from types import ModuleType
from typing import Any

from berth.runtime.log import PREFIX

_GPU_ALONE = ("fp16", "fp16_full_eval", "tf32")
"""What TrainingArguments refuse without a GPU, under their names there."""
_CPU_BACKENDS = ("gloo", "mpi", "ccl")


def after_training_arguments(module: ModuleType, environ: MutableMapping[str, str] = os.environ) -> None:
    """For transformers.training_args, once it is imported. That of transformers 5 and later, which takes the CPU by
    itself, is left alone, as is a user's own module of that name.
    """
    arguments: Any = getattr(module, "TrainingArguments", None)
    if not hasattr(arguments, "no_cuda"):
        return
    original = arguments.__post_init__

    @functools.wraps(original)
    def prepared(self: Any) -> None:
        import torch

        if not torch.cuda.is_available():
            off = take_cpu(self, environ)
            if off and environ.get("RANK", "0") == "0":
                verb = "is" if len(off) == 1 else "are"
                print(f"{PREFIX}{' and '.join(off)} {verb} off: this host has no GPU that torch can use", flush=True)
        original(self)

    arguments.__post_init__ = prepared


def after_trainer(module: ModuleType) -> None:
    """For transformers.trainer of before 5, once it is imported: for a job of smdistributed it gives its DDP the GPU of
    its rank in any case, and DDP refuses one that is not there.
    """
    trainer: Any = getattr(module, "Trainer", None)
    arguments = getattr(module, "TrainingArguments", None)
    original = getattr(trainer, "_wrap_model", None)
    if original is None or not hasattr(arguments, "no_cuda"):
        return

    @functools.wraps(original)
    def wrapped(self: Any, *given: Any, **named: Any) -> Any:
        import torch

        if torch.cuda.is_available():
            return original(self, *given, **named)
        # Its own __init__, and not another class: accelerate asks for instances of this one meanwhile.
        parallel = torch.nn.parallel.DistributedDataParallel
        of_torch = parallel.__init__

        def without_devices(model: Any, module: Any, **options: Any) -> None:
            of_torch(model, module, **{**options, "device_ids": None, "output_device": None})

        parallel.__init__ = without_devices  # type: ignore[method-assign,assignment]
        try:
            return original(self, *given, **named)
        finally:
            parallel.__init__ = of_torch  # type: ignore[method-assign]

    trainer._wrap_model = wrapped


def take_cpu(arguments: Any, environ: MutableMapping[str, str]) -> list[str]:
    """Set in TrainingArguments and in the environment what a training on CPUs wants; what was turned off for it."""
    # From 4.34 on the old name draws a warning.
    setattr(arguments, "use_cpu" if hasattr(arguments, "use_cpu") else "no_cuda", True)
    # From 4.30 on accelerate chooses, and its choice is gloo.
    if hasattr(arguments, "xpu_backend") and arguments.xpu_backend not in _CPU_BACKENDS:
        arguments.xpu_backend = "gloo"
    if environ.get("WORLD_SIZE", "1") == "1":
        # One that mpirun started by itself forms a group of one, which wants a leader all the same.
        environ.setdefault("MASTER_ADDR", "127.0.0.1")
    off = [name for name in _GPU_ALONE if getattr(arguments, name, None)]
    for name in off:
        setattr(arguments, name, None if name == "tf32" else False)
    return off
