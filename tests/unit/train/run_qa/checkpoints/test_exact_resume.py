"""Tests that a resumed training equals an uninterrupted one, and that it may use another number of ranks."""

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
# With adam_epsilon, Adam does not turn rounding noise into large steps.
NO_DROPOUT = {"hidden_dropout_prob": "0", "attention_probs_dropout_prob": "0", "adam_epsilon": "0.001"}


def jobs(new_job: Any, folder: Path, model: Path, ranks: int, hyperparameters: dict[str, str]) -> list[Any]:
    """One job per rank. Unlike ranks of one host, each has its own folder."""
    return [new_job(folder / f"rank{rank}", model, hyperparameters) for rank in range(ranks)]


def run(host: Any, started: list[Any], checkpoint: Path | None = None) -> str:
    """Run the ranks, from a checkpoint if one is given, and return rank 0's log."""
    for job in started if checkpoint else []:
        job.resume_from(checkpoint)
    ends = host.run(*started)
    return ends[0].out + ends[0].err


def losses(job: Any) -> list[Any]:
    """Step and rounded loss of each entry of history.json that has a loss."""
    return [(each["step"], each["loss"] and round(each["loss"], 4)) for each in job.history() if "loss" in each]


@pytest.mark.parametrize(
    ("ranks", "steps_of_epoch"),
    [*(pytest.param(ranks, steps, marks=pytest.mark.nightly) for ranks, steps in ((1, 7), (2, 4))), (3, 3)],
)
@pytest.mark.slow
def test_resume_is_exact_to_the_bit(
    ranks: int, steps_of_epoch: int, tmp_path: Path, tiny_model: Path, host: Any, new_job: Any
) -> None:
    """Resumes in the middle and at the end of an epoch, with dropout. The last step of an epoch has one micro-batch,
    each other step has two.

    With three ranks the sum of gradients depends on DDP's order of buckets; with two ranks it does not.
    """
    uninterrupted = jobs(new_job, tmp_path / "uninterrupted", tiny_model, ranks, BY_STEPS)
    run(host, uninterrupted)
    saved = uninterrupted[0].checkpoints()
    assert len(saved) == 2 * steps_of_epoch
    written = manifest.read(saved[1])
    assert (written.step, written.ranks, written.kit) == (2, ranks, metadata.version("berth"))
    state = {"model.safetensors", "optimizer.pt", "scheduler.pt", "random_states.json", "trainer_state.json"}
    assert state <= written.files.keys()
    resumed = jobs(new_job, tmp_path / "resumed", tiny_model, ranks, BY_STEPS)
    for step in (2, steps_of_epoch):
        log = run(host, resumed, saved[step - 1])
        assert f"going on from {resumed[0].base}/checkpoints/checkpoint-{step}-" in log
        assert "WARN" not in log.upper()
        assert resumed[0].metrics()["train_steps"] == 2 * steps_of_epoch
        assert resumed[0].metrics()["weights_sha256"] == uninterrupted[0].metrics()["weights_sha256"]
        assert losses(resumed[0]) == losses(uninterrupted[0])


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (2, 1, "8 windows: 1 rank, per_device_train_batch_size 2, gradient_accumulation_steps 4"),
        pytest.param(
            *(1, 2, "4 windows: 2 ranks, per_device_train_batch_size 2, gradient_accumulation_steps 1"),
            marks=pytest.mark.nightly,
        ),
    ],
)
@pytest.mark.slow
def test_resume_with_another_number_of_ranks(
    before: int, after: int, line: str, tmp_path: Path, tiny_model: Path, host: Any, new_job: Any
) -> None:
    hyperparameters = BY_STEPS | NO_DROPOUT
    uninterrupted = jobs(new_job, tmp_path / "uninterrupted", tiny_model, before, hyperparameters)
    run(host, uninterrupted)
    other = jobs(new_job, tmp_path / "other", tiny_model, after, hyperparameters)
    log = run(host, other, uninterrupted[0].checkpoints()[1])
    assert f"a step keeps the checkpoint's {line}" in log
    assert f"the checkpoint is from {before} rank" in log
    assert other[0].metrics()["train_steps"] == uninterrupted[0].metrics()["train_steps"]
    assert losses(other[0])[2] == (3, pytest.approx(losses(uninterrupted[0])[2][1], abs=1e-3)), (
        "both jobs must train on the same windows"
    )
    assert other[0].metrics()["eval_loss"] == pytest.approx(uninterrupted[0].metrics()["eval_loss"], rel=0.02)


NO_TOKENIZER = """
from transformers import PreTrainedTokenizerFast
def save(self, **named):
    self.backend_tokenizer.save("/dev/full")
PreTrainedTokenizerFast._save_pretrained = save
"""


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        ("weights", "a file was cut off, as on a full disk"),
        ("tokenizer", "No space left on device"),
        ("no-folder", "No such file or directory"),
        ("read-only", "Read-only file system"),
    ],
)
@pytest.mark.slow
def test_training_continues_without_a_checkpoint_that_cannot_be_written(
    problem: str, cause: str, tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, mounted: Any
) -> None:
    """The disk is too small for the optimizer or the tokenizer, or the folder can't be written to."""
    hyperparameters = BY_STEPS | {"save_steps": "5"}
    folder = "/proc/sys" if problem == "no-folder" else str(tmp_path / "rank0/checkpoints")
    pair = jobs(new_job, tmp_path, tiny_model, 2, hyperparameters | {"output_dir": folder})
    if problem == "read-only":
        mounted(Path(folder), "ro")
    if problem == "tokenizer":
        pair[0].before = NO_TOKENIZER
        (tmp_path / "rank0/model").mkdir()
    without_model = problem == "tokenizer"  # it can't be written either
    ends = host.run(*pair, code=int(without_model), LARGEST_FILE="60000" if problem == "weights" else "0")
    log = [line for line in ends[0].out.splitlines() if "could be written" in line]
    assert [line.partition(" could")[0] for line in log] == [
        f"warning: no checkpoint of step {step}" for step in (5, 8)
    ]
    assert all(f" into {folder} ({cause}): the training continues without it; free space" in line for line in log)
    if without_model:
        assert f"The model can't be written to {tmp_path}/rank0/model ({cause}): give the job a" in ends[0].err
        assert "Traceback" not in ends[0].err
        assert not list((tmp_path / "rank0/model").glob("*.safetensors"))
    else:
        assert (pair[0].base / "model/model.safetensors").is_file()
    if problem in ("weights", "tokenizer"):
        assert not list(Path(folder).iterdir())
