"""What keeps a checkpoint from being written, and which rank of a job deletes those that are one too many."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from berth.contract.errors import JobError
from berth.train import run_qa
from berth.train.environment import Rank
from berth.train.finetune.checkpoints.saving import CheckpointTrainer, cause, is_write_error
from berth.train.finetune.model import Loaded


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


def test_half_a_model_that_is_spread_over_ranks_is_a_sentence_and_goes(tmp_path: Path) -> None:
    """As fsdp leaves it on GPUs, where Trainer gathers and writes it."""

    def save_model(folder: str) -> None:
        (Path(folder) / "model-00001-of-00002.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    trainer = SimpleNamespace(rank=Rank(), sharded=True, save_model=save_model)
    with pytest.raises(JobError, match=r"The model can't be written to .* \(No space left on device\): give the job a"):
        run_qa._save(trainer, Loaded(None, None, ()), tmp_path / "model", print)
    assert not list((tmp_path / "model").iterdir())
