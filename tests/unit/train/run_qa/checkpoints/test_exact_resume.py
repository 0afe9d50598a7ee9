"""A training that is stopped and goes on ends with the weights of one that was not; on other ranks, with its loss."""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from berth.train.run_qa.checkpoints import manifest

BY_STEPS = {
    "do_train": "true",
    "num_train_epochs": "2",
    "per_device_train_batch_size": "2",
    "gradient_accumulation_steps": "2",
    "save_strategy": "steps",
    "save_steps": "1",
    "max_seq_length": "48",
    "doc_stride": "8",
    "learning_rate": "0.001",
    "export_openvino": "false",
}
# What is noise for Adam must not become a step.
NO_DROPOUT = {"hidden_dropout_prob": "0", "attention_probs_dropout_prob": "0", "adam_epsilon": "0.001"}


def jobs(new_job: Any, folder: Path, model: Path, ranks: int, given: dict[str, str]) -> list[Any]:
    """A job for each rank; ranks of one host share a folder, here each has its own."""
    return [new_job(folder / f"rank{rank}", model, given) for rank in range(ranks)]


def run(host: Any, started: list[Any], checkpoint: Path | None = None) -> str:
    """Run ranks to their end, from a checkpoint if one is given; what rank 0 said."""
    for job in started if checkpoint else []:
        job.goes_on_from(checkpoint)
    ends = host.run(*started)
    assert [end.code for end in ends] == [0] * len(ends), ends
    return ends[0].out + ends[0].err


def losses(job: Any) -> list[Any]:
    """What history.json has of each step's loss."""
    return [(each["step"], each["loss"] and round(each["loss"], 4)) for each in job.history() if "loss" in each]


@pytest.mark.parametrize(("ranks", "steps_of_epoch"), [(1, 7), pytest.param(2, 4, marks=pytest.mark.nightly), (3, 3)])
@pytest.mark.slow
def test_it_goes_on_to_the_same_bits(
    ranks: int, steps_of_epoch: int, tmp_path: Path, tiny_model: Path, host: Any, new_job: Any
) -> None:
    """With dropout, in mid-epoch and after it; on 1 and 3 ranks an epoch's last step has one micro-batch, others two.

    Two ranks add gradients up in one order only, three in as many as DDP arranges them.
    """
    whole = jobs(new_job, tmp_path / "whole", tiny_model, ranks, BY_STEPS)
    run(host, whole)
    saved = whole[0].checkpoints()
    assert len(saved) == 2 * steps_of_epoch
    written = manifest.read(saved[1])
    assert written is not None
    assert (written.step, written.ranks, written.kit) == (2, ranks, metadata.version("berth"))
    state = {"model.safetensors", "optimizer.pt", "scheduler.pt", "random_states.json", "trainer_state.json"}
    assert state <= written.files.keys()
    again = jobs(new_job, tmp_path / "again", tiny_model, ranks, BY_STEPS)
    for step in (2, steps_of_epoch):
        said = run(host, again, saved[step - 1])
        assert f"going on from {again[0].base}/checkpoints/checkpoint-{step}-" in said
        assert "WARN" not in said.upper()
        assert again[0].metrics()["train_steps"] == 2 * steps_of_epoch
        assert again[0].metrics()["weights_sha256"] == whole[0].metrics()["weights_sha256"]
        assert losses(again[0]) == losses(whole[0])


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (2, 1, "8 windows: 1 rank, per_device_train_batch_size 2, gradient_accumulation_steps 4"),
        (1, 2, "4 windows: 2 ranks, per_device_train_batch_size 2, gradient_accumulation_steps 1"),
    ],
)
@pytest.mark.slow
def test_it_goes_on_with_another_number_of_ranks(
    before: int, after: int, line: str, tmp_path: Path, tiny_model: Path, host: Any, new_job: Any
) -> None:
    given = BY_STEPS | NO_DROPOUT
    whole = jobs(new_job, tmp_path / "whole", tiny_model, before, given)
    run(host, whole)
    other = jobs(new_job, tmp_path / "other", tiny_model, after, given)
    said = run(host, other, whole[0].checkpoints()[1])
    assert f"a step keeps the checkpoint's {line}" in said
    assert f"the checkpoint is from {before} rank" in said
    assert other[0].metrics()["train_steps"] == whole[0].metrics()["train_steps"]
    assert losses(other[0])[2] == (3, pytest.approx(losses(whole[0])[2][1], abs=1e-3)), "the same windows"
    assert other[0].metrics()["eval_loss"] == pytest.approx(whole[0].metrics()["eval_loss"], rel=0.02)


NO_TOKENIZER = """
from transformers import PreTrainedTokenizerFast
def save(self, **named):
    self.backend_tokenizer.save("/dev/full")
PreTrainedTokenizerFast._save_pretrained = save
"""


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        ("weights", "a file was cut off, as on a full disk"),
        ("tokenizer", "No space left on device"),
        ("no folder", "No such file or directory"),
        ("read-only", "Read-only file system"),
    ],
)
@pytest.mark.slow
def test_a_checkpoint_that_can_not_be_written_costs_no_training(
    where: str, cause: str, tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, mounted: Any
) -> None:
    """The optimizer's state, or the last file, is larger than the disk takes, or nothing can be made in the folder."""
    given = BY_STEPS | {"save_steps": "5"}
    folder = "/proc/sys" if where == "no folder" else str(tmp_path / "rank0/checkpoints")
    pair = jobs(new_job, tmp_path, tiny_model, 2, given | {"output_dir": folder})
    if where == "read-only":
        mounted(Path(folder), "ro")
    if where == "tokenizer":
        pair[0].before = NO_TOKENIZER
        (tmp_path / "rank0/model").mkdir()
    ends = host.run(*pair, LARGEST_FILE="60000" if where == "weights" else "0")
    said = [line for line in ends[0].out.splitlines() if "could be written" in line]
    assert [line.partition(" could")[0] for line in said] == [
        f"warning: no checkpoint of step {step}" for step in (5, 8)
    ]
    assert all(f" into {folder} ({cause}): the training continues without it; free space" in line for line in said)
    if where == "tokenizer":  # which the model's own folder can't take either
        assert ends[0].code == 1
        assert f"The model can't be written to {tmp_path}/rank0/model ({cause}): give the job a" in ends[0].err
        assert "Traceback" not in ends[0].err
        assert not list((tmp_path / "rank0/model").glob("*.safetensors"))
    else:
        assert [end.code for end in ends] == [0, 0], ends
        assert (pair[0].base / "model/model.safetensors").is_file()
    if where in ("weights", "tokenizer"):
        assert not list(Path(folder).iterdir())
