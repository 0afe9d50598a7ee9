"""Tests a second job with the checkpoints of a first one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForQuestionAnswering

from berth.train.run_qa.checkpoints.manifest import MANIFEST
from tests.unit.train.run_qa.conftest import WORSE_AND_WORSE, capitals

NO_GRAPH = {"export_openvino": "false"}


@pytest.mark.slow
def test_best_model_and_resume(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """Evaluations during the training choose the best checkpoint; the second start resumes from the newest one."""
    job = new_job(
        tmp_path,
        tiny_model,
        few_steps | NO_GRAPH | {"max_steps": "-1", "num_train_epochs": "2", "load_best_model_at_end": "True"},
    )
    (end,) = host.run(job)
    assert "checkpoints: epoch, in " in end.out
    assert len(job.checkpoints()) == 2
    first = job.metrics()
    measured = [entry["f1"] for entry in job.history() if "f1" in entry]
    assert first["eval_f1"] == max(measured)
    (end,) = host.run(job)
    assert f"going on from {tmp_path}/checkpoints/" in end.out
    assert job.metrics()["weights_sha256"] == first["weights_sha256"]


@pytest.mark.parametrize("shorter", [{"num_train_epochs": "1"}, {"max_steps": "20"}], ids=["epochs", "steps"])
@pytest.mark.slow
def test_nothing_left_to_train_is_a_warning(
    shorter: dict[str, str], tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    hyperparameters = few_steps | NO_GRAPH | {"max_steps": "-1", "num_train_epochs": "2"}
    hyperparameters |= {"save_strategy": "steps", "save_steps": "20"}
    first = new_job(tmp_path / "first", tiny_model, hyperparameters | {"lr_scheduler_type": "constant"})
    second = new_job(tmp_path / "second", tiny_model, hyperparameters | {"lr_scheduler_type": "constant"} | shorter)
    (end,) = host.run(first)
    assert "train_loss = " in end.out
    folder = next(path for path in first.checkpoints() if path.name.startswith("checkpoint-20-"))
    second.resume_from(folder)
    (end,) = host.run(second)
    (line,) = [line for line in end.out.splitlines() if "nothing is left to train" in line]
    assert line.startswith("warning: the checkpoint is at step 20 and the job ends at step ")
    assert "raise max_steps or num_train_epochs" in line
    assert "set overwrite_output_dir to true" in line
    assert " → " not in end.out
    assert "train_loss" not in end.out
    assert not {"train_loss", "train_runtime"} & second.metrics().keys()
    written, kept = second.weights(), load_file(folder / "model.safetensors")
    assert all(torch.equal(written[name], kept[name]) for name in kept)


def error_line(end: Any) -> str:
    """The error of a refused job."""
    assert "Traceback" not in end.err
    return end.err.splitlines()[-1]


@pytest.mark.slow
def test_checkpoint_of_another_training_is_refused_and_kept(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """A manifest shows the difference. Trainer's checkpoints have none, but their optimizer state does not fit."""
    job = new_job(tmp_path, tiny_model, few_steps | NO_GRAPH | {"save_strategy": "steps", "save_steps": "2"})
    host.run(job)
    saved = job.checkpoints()
    (saved[0] / MANIFEST).unlink()  # incomplete, but a refused job must not delete it
    files = sorted(tmp_path.rglob("checkpoints/*/*"))
    (tmp_path / "input/data/train/part.json").write_text(json.dumps(capitals(range(21))))
    (end,) = host.run(job, code=1)
    error = error_line(end)
    assert f"The checkpoint {saved[-1]} was written with other training data, or another tokenizer" in error
    assert "set overwrite_output_dir to true" in error
    config = BertConfig.from_pretrained(tiny_model, num_hidden_layers=1)
    BertForQuestionAnswering(config).save_pretrained(tmp_path / "input/data/model")
    (tmp_path / "input/data/train/part.json").write_text(json.dumps(capitals(range(20))))
    (end,) = host.run(job, code=1)
    assert f"The checkpoint {saved[-1]} was written with another model than this job's" in error_line(end)
    assert sorted(tmp_path.rglob("checkpoints/*/*")) == files

    job.resume_from(saved[-1])
    (own,) = job.checkpoints()
    (own / MANIFEST).unlink()
    own.rename(own.with_name("checkpoint-5"))
    (end,) = host.run(job, code=1)
    assert "checkpoint-5 is from another model or optimizer" in error_line(end)


@pytest.mark.slow
def test_resumed_job_saves_and_logs_at_its_own_intervals(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """Trainer itself would keep the intervals of the job that wrote the checkpoint."""
    hyperparameters = (
        few_steps | NO_GRAPH | {"do_eval": "false", "save_strategy": "steps", "save_steps": "3", "max_steps": "6"}
    )
    first = new_job(tmp_path / "first", tiny_model, hyperparameters)
    host.run(first)
    second = new_job(
        tmp_path / "second", tiny_model, hyperparameters | {"save_steps": "2", "logging_steps": "4", "max_steps": "9"}
    )
    second.resume_from(first.checkpoints()[0])
    host.run(second)
    assert [int(path.name.split("-")[1]) for path in second.checkpoints()] == [3, 4, 6, 8, 9]
    assert [each["step"] for each in second.history() if each["step"] > 3] == [4, 8]


@pytest.mark.slow
def test_missing_best_checkpoint_is_replaced_by_the_best_later_one(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    hyperparameters = (
        few_steps | NO_GRAPH | {"load_best_model_at_end": "true", "eval_strategy": "steps", "eval_steps": "1"}
    )
    first, second = (
        new_job(tmp_path / name, tiny_model, hyperparameters | {"max_steps": steps})
        for name, steps in (("first", "2"), ("second", "4"))
    )
    for job in (first, second):
        job.before = WORSE_AND_WORSE
    host.run(first)
    second.resume_from(first.checkpoints()[1])
    (first.checkpoints()[0]).rename(tmp_path / "elsewhere")
    (end,) = host.run(second)
    assert "warning: the checkpoint of the best model so far (step 1) no longer exists" in end.out
    written, best = second.weights(), load_file(second.checkpoints()[1] / "model.safetensors")
    assert second.checkpoints()[1].name.startswith("checkpoint-3-")
    assert all(torch.equal(written[name], best[name]) for name in best)
