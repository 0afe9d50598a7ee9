"""Which rank of a job deletes checkpoints that are one too many."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from berth.train.environment import Rank
from berth.train.finetune.checkpoints.saving import CheckpointTrainer


@pytest.mark.parametrize(
    ("rank", "stay"),
    [(Rank(), "bc"), (Rank(0, 0, 4, 2), "bc"), (Rank(1, 1, 4, 2), "abc"), (Rank(2, 0, 4, 2), "bc")],
    ids=["alone", "first", "second of its host", "first of the second host"],
)
def test_one_rank_of_each_host_deletes_older_ones(rank: Rank, stay: str, tmp_path: Path) -> None:
    """Where weights are spread over ranks by accelerate, each host holds a part of every checkpoint."""
    known = tuple(tmp_path / name for name in "abc")
    for path in known:
        path.mkdir()
    trainer = object.__new__(CheckpointTrainer)
    trainer.rank, trainer._known, trainer._limit = rank, known[:2], 2
    trainer.state = SimpleNamespace(best_model_checkpoint=None)
    trainer._keep_newest(known[2])
    assert sorted(path.name for path in tmp_path.iterdir()) == list(stay)
