"""Tests how write errors of the libraries are recognised and described."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from berth.train.run_qa.checkpoints.saving import cause, is_write_error


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda: Tokenizer(models.BPE()).save("/dev/full"), "No space left on device"),
        (lambda: save_file({"weights": torch.zeros(9)}, "/proc/none/weights"), "Error while serializing: I/O error: "),
        (lambda: Path("/proc/none").mkdir(), "No such file or directory"),
    ],
    ids=["tokenizer", "weights", "folder"],
)
def test_write_errors_of_all_libraries_are_recognised(write: Callable[[], Any], why: str) -> None:
    with pytest.raises(Exception, match="o") as raised:  # tokenizers raises a bare Exception
        write()
    assert is_write_error(raised.value)
    assert cause(raised.value).startswith(why)
    assert "os error" not in cause(raised.value)


def test_other_errors_are_not_write_errors() -> None:
    assert not any(is_write_error(each) for each in (KeyError("name"), ValueError("(os error 2)"), Exception("no")))
