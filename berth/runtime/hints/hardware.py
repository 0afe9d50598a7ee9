"""CUDA in an image or on a host without it."""

import re

from berth.runtime.hints.images import PROFILES, this_image
from berth.runtime.hints.program import ProgramContext, RaisedException

_NO_CUDA = re.compile(
    r"not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available|CUDA is not available|"
    r"mixed precision requires a GPU|can only be used on CUDA devices|requires? (?:a )?(?:CUDA|GPU)|"
    r"No CUDA runtime is found|Invalid device string: 'cuda|no NVIDIA GPU|has no attribute '_cuda_"
)
_LOADED = re.compile(r"Attempting to deserialize object on a CUDA device")
_NCCL = re.compile(r"doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs")
_AVAILABLE = "torch.cuda.is_available()"


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The image or instance to use, and how to write the program so that it runs without a GPU."""
    if _LOADED.search(raised.message):
        return '; load it with map_location="cpu"'
    if _NCCL.search(raised.message):
        return f'; without a GPU use init_process_group("nccl" if {_AVAILABLE} else "gloo")'
    if not _NO_CUDA.search(raised.message):
        return ""
    write = "leave fp16 and bf16 out" if "precision" in raised.message else f'use "cuda" if {_AVAILABLE} else "cpu"'
    here = this_image()
    if here.cuda:
        return f"; this host has no GPU: choose an instance that has one, such as ml.g5.xlarge, or {write}"
    newest = next(name for name in PROFILES if name.startswith("cu1"))
    return (
        f"; this image is for CPUs: build one with `python build.py build {context.image} --profile {newest}` and "
        f"choose an instance with a GPU, such as ml.g5.xlarge, or {write}"
    )
