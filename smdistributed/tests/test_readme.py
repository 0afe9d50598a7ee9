"""smdistributed/README.md lists every option, and every function of SMDDP's version 1."""

import re
from pathlib import Path

import pytest
import rank_jobs
import torch

from berth.images.pins import pins
from berth.smdistributed.dataparallel.torch import distributed
from berth.smdistributed.modelparallel import parameters

PAGE = (pins.ROOT / "smdistributed" / "README.md").read_text()
TABLE = PAGE.partition("\n### Options\n")[2].partition("\n### ")[0]
ROWS = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| `")]


def options(*words: str) -> set[str]:
    """The options in rows whose second cell begins with one of these words."""
    return {name for row in ROWS if row[1].startswith(words) for name in re.findall(r"`(\w+)`", row[0])}


def test_table_lists_every_option_with_its_handling() -> None:
    assert options("honoured") == set(parameters.HONOURED)
    assert options("accepted") == set(parameters.ACCEPTED)
    assert options("refused") == set(parameters.REFUSED)


def test_page_names_every_function_of_version_1() -> None:
    ours = {
        name
        for name, each in vars(distributed).items()
        if callable(each) and getattr(each, "__module__", "") == distributed.__name__ and not name.startswith("_")
    }
    internal = {"AveragedWork", "check_group", "check_initialized", "join_environment"}
    assert ours - internal <= set(re.findall(r"\w+", PAGE))


OPENING = """
import os, torch
os.environ["SM_HP_MP_PARAMETERS"] = '{"partitions": 2, "tensor_parallel_degree": 2, "microbatches": 4, "ddp": true}'
torch.manual_seed(0)
def make_model():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
def batches(rank):
    return [(torch.randn(8, 8), torch.randint(3, (8,))) for _ in range(3)]
"""


@pytest.mark.slow
def test_the_script_of_the_page_trains_and_saves(tmp_path: Path) -> None:
    script = PAGE.partition("```python\n")[2].partition("```")[0]
    body = script.replace("/opt/ml/checkpoints", str(tmp_path)) + "torch.save(float(loss), f'{tmp}/{smp.rank()}.pt')"
    path = tmp_path / "script.py"
    path.write_text(f"tmp = {str(tmp_path)!r}\n{OPENING}{body}")
    rank_jobs.start(path, 4, tmp_path)
    losses = [torch.load(tmp_path / f"{rank}.pt") for rank in range(4)]
    assert all(0 < loss < 3 for loss in losses)
    assert set(torch.load(tmp_path / "last")) == {"0.weight", "0.bias", "2.weight", "2.bias"}
