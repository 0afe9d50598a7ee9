"""What keeps a checkpoint from being written, and which rank of a job deletes those that are one too many."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from berth.train.environment import Rank
from berth.train.finetune.checkpoints.saving import CheckpointTrainer, cause, is_write_error


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


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda: Tokenizer(models.BPE()).save("/dev/full"), "No space left on device"),
        (lambda: save_file({"weights": torch.zeros(9)}, "/proc/none/weights"), "Error while serializing: I/O error: "),
        (lambda: Path("/proc/none").mkdir(), "No such file or directory"),
    ],
    ids=["tokenizer", "weights", "folder"],
)
def test_a_disk_that_takes_no_file_is_known_whatever_a_library_raises(write: Callable[[], Any], why: str) -> None:
    with pytest.raises(Exception, match="o") as raised:  # tokenizers raises no other
        write()
    assert is_write_error(raised.value)
    assert cause(raised.value).startswith(why)
    assert "os error" not in cause(raised.value)


def test_other_errors_are_not_taken_for_a_full_disk() -> None:
    assert not any(is_write_error(each) for each in (KeyError("name"), ValueError("(os error 2)"), Exception("no")))
