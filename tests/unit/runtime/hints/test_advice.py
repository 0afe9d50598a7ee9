"""Advice of other libraries to install a package becomes a line for requirements.txt."""

import pytest
from transformers.utils.import_utils import CV2_IMPORT_ERROR

from berth.runtime.hints import advice
from berth.runtime.hints.program import RaisedException
from tests.unit.runtime.hints.programs import NOWHERE


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("`tiktoken` is required to read a file. Install it with `pip install tiktoken`.", "the line tiktoken"),
        ("4-bit quantization: `pip install -U bitsandbytes>=0.46.1`", "the line bitsandbytes>=0.46.1"),
        ("tabulate is not installed, please pip install tabulate to use this utility", "the line tabulate"),
        ("AutoRound requires a library (`pip install 'auto-round>=0.5'`)", "the line auto-round>=0.5"),
        ("Please run `pip install transformers[torch]` or `pip install 'accelerate>=1.1.0'`", "transformers[torch]"),
        (" ".join(CV2_IMPORT_ERROR.split()), "the line opencv-python-headless"),
        ("needs espeak-ng: apt-get install -y espeak-ng", "espeak-ng is a system package"),
        ("label 7 is out of range. Install a new one.", ""),
    ],
)
def test_pip_advice_becomes_requirements_line(message: str, hint: str) -> None:
    sentence = advice.hint(RaisedException("ImportError", message), NOWHERE)
    assert hint in sentence
    assert bool(sentence) == bool(hint)
