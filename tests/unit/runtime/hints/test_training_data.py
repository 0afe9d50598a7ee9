"""Labels, ids and workers that torch refuses or loses: what helps, for the real exceptions."""

from pathlib import Path

import pytest

from berth.runtime.hints.program import RaisedException
from berth.runtime.hints.table import remedy
from tests.unit.runtime.hints.programs import NOWHERE, lay, remedy_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("nn.functional.cross_entropy(torch.zeros(1, 5), torch.tensor([5]))", "num_labels - 1: map the label 5"),
        ("nn.Embedding(10, 1)(torch.tensor([99]))", "resize_token_embeddings"),
    ],
)
def test_a_label_or_an_id_that_the_model_lacks(tmp_path: Path, code: str, words: str) -> None:
    lay(tmp_path, {"train.py": f"import torch\nfrom torch import nn\n{code}\n"})
    assert words in remedy_of(tmp_path)


def test_a_worker_that_is_killed() -> None:
    raised = RaisedException("RuntimeError", "DataLoader worker (pid 21) is killed by signal: Killed. ")
    assert "fewer num_workers" in remedy(raised, NOWHERE)
