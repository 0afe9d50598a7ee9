"""Hints for exceptions that are recognised by their message."""

from pathlib import Path

import pytest

from berth.runtime.hints.program import RaisedException
from berth.runtime.hints.table import remedy
from tests.unit.runtime.hints.programs import NOWHERE, remedy_in_process


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("nn.functional.cross_entropy(torch.zeros(1, 5), torch.tensor([5]))", "num_labels - 1: map the label 5"),
        ("nn.Embedding(10, 1)(torch.tensor([99]))", "resize_token_embeddings"),
    ],
)
def test_label_or_token_id_out_of_range(tmp_path: Path, code: str, words: str) -> None:
    assert words in remedy_in_process(tmp_path, f"import torch\nfrom torch import nn\n{code}")


STRATEGIES = "load_best_model_at_end requires the save and eval strategy to match, but found\n- Evaluation strategy: "


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        ("RuntimeError", "DataLoader worker (pid 21) is killed by signal: Killed. ", "fewer num_workers"),
        ("AttributeError", "Can't get attribute 'Net' on <module '__main__' (built-in)>", "in the script that defines"),
        (
            "AttributeError",
            "Can't get attribute 'Net' on <module 'nets' from '/x'>",
            "pack the version of nets that has it",
        ),
        (
            "ValueError",
            f"{STRATEGIES}IntervalStrategy.EPOCH\n- Save strategy: SaveStrategy.STEPS",
            "same save_strategy",
        ),
    ],
)
def test_hint_for_known_message(kind: str, message: str, words: str) -> None:
    assert words in remedy(RaisedException(kind, message), NOWHERE)
