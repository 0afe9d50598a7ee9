"""Other libraries' advice, in the words of the packages that are installed: cut where it can't be followed in a job."""

import pytest
from transformers.utils import import_utils

from berth.runtime.hints import advice
from berth.runtime.hints.program import RaisedException
from tests.unit.runtime.hints.programs import NOWHERE

OF_TRANSFORMERS = {
    name: " ".join(text.replace("{0}", "XTokenizer").split())
    for name, text in vars(import_utils).items()
    if name.endswith("_IMPORT_ERROR") and isinstance(text, str)
}


@pytest.mark.parametrize(
    ("message", "left", "hint"),
    [
        (
            "Failed to import transformers.trainer because of the following error (look up to see its traceback): No "
            "module named 'pkg_resources'",
            "Failed to import transformers.trainer because of the following error: No module named 'pkg_resources'",
            "",
        ),
        (
            "`tiktoken` is required to read a `tiktoken` file. Install it with `pip install tiktoken`.",
            "`tiktoken` is required to read a `tiktoken` file.",
            "the line tiktoken",
        ),
        (
            "Using `bitsandbytes` 4-bit quantization requires bitsandbytes: `pip install -U bitsandbytes>=0.46.1`",
            "Using `bitsandbytes` 4-bit quantization requires bitsandbytes",
            "the line bitsandbytes>=0.46.1",
        ),
        (
            "tabulate is not installed, please pip install tabulate to use this utility",
            "tabulate is not installed",
            "the line tabulate",
        ),
        (
            "DeepSpeed is not installed => run `pip install deepspeed` or build it from source.",
            "DeepSpeed is not installed",
            "the line deepspeed",
        ),
        ("Please pip install lz4", "lz4 is not installed", "the line lz4"),
        (
            "Loading an AutoRound model requires auto-round library (`pip install 'auto-round>=0.5'`)",
            "Loading an AutoRound model requires auto-round library",
            "the line auto-round>=0.5",
        ),
        (
            "Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`: Please run `pip install "
            "transformers[torch]` or `pip install 'accelerate>=1.1.0'`",
            "Using the `Trainer` with `PyTorch` requires `accelerate>=1.1.0`",
            "the line transformers[torch]",
        ),
        (
            "CUDA error: device-side assert triggered For debugging consider passing CUDA_LAUNCH_BLOCKING=1 Compile "
            "with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
            "CUDA error: device-side assert triggered For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
            "",
        ),
        (OF_TRANSFORMERS["CV2_IMPORT_ERROR"], None, "the line opencv-python-headless"),
        ("needs espeak-ng: apt-get install -y espeak-ng", "needs espeak-ng", "espeak-ng is a system package"),
        ("label 7 is out of range. Install a new one.", "label 7 is out of range. Install a new one.", ""),
    ],
)
def test_advice_is_cut_or_becomes_a_line_of_requirements(message: str, left: str | None, hint: str) -> None:
    assert left is None or advice.without_advice(message) == left
    said = advice.hint(RaisedException("ImportError", message), NOWHERE)
    assert hint in said
    assert bool(said) == bool(hint)


@pytest.mark.parametrize("name", sorted(OF_TRANSFORMERS))
def test_of_transformers_own_messages_the_need_is_left(name: str) -> None:
    left = advice.without_advice(OF_TRANSFORMERS[name])
    assert left.startswith("XTokenizer ")
    assert not any(
        word in left.lower() for word in ("pip install", "conda", "apt ", "brew", "restart", "colab", "notebook")
    )
