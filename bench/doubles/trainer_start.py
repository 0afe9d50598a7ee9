"""The program of each rank for a script of transformers 4.26, on a host without a GPU.

Usage: python trainer_start.py SCRIPT [ARGUMENT ...]

Trainer's arguments name a CUDA device for both of SageMaker's libraries; here it is the CPU, as the training image's
own hook has it. The script's text and transformers' stay as they are.
"""

import os
import runpy
import sys
from typing import Any

import torch


class TorchOnCpu:
    """torch, whose devices are the CPU."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def device(self, *_: Any) -> torch.device:
        return torch.device("cpu")


def main() -> None:
    torch.set_num_threads(1)
    if "SM_FRAMEWORK_PARAMS" in os.environ:
        torch.cuda.set_device = lambda device: None
        import transformers.training_args

        transformers.training_args.torch = TorchOnCpu()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
