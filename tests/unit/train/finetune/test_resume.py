"""A second job on the checkpoints of a first: it goes on as if it had never stopped, or says in one line why not."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForQuestionAnswering


@pytest.mark.slow
def test_best_model_and_resume(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """Evaluation while training picks the best checkpoint; a second start goes on from the newest one."""
    job = new_job(
        tmp_path, tiny_model, few_steps | {"max_steps": "-1", "num_train_epochs": "2", "load_best_model_at_end": "True"}
    )
    (end,) = host.run(job)
    assert end.code == 0, end.err
    assert "checkpoints: epoch, in " in end.out
    steps = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert len(steps) == 2
    first = job.metrics()
    measured = [entry["f1"] for entry in job.history() if "f1" in entry]
    assert first["eval_f1"] == max(measured)
    (end,) = host.run(job)
    assert end.code == 0, end.err
    assert f"going on from {tmp_path}/checkpoints/" in end.out
    assert job.metrics()["weights_sha256"] == first["weights_sha256"]


def leave_one_checkpoint(folder: Path) -> str:
    """Remove all checkpoints but the oldest, as if the job had stopped there; its name."""
    oldest, *later = sorted(folder.iterdir(), key=lambda entry: int(entry.name.partition("-")[2]))
    for entry in later:
        shutil.rmtree(entry)
    return oldest.name


@pytest.mark.slow
def test_two_ranks_go_on_in_the_middle_of_an_epoch(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """The rest of the second epoch takes the same questions in the same order: equal bits at the end."""
    given = {"max_steps": "-1", "num_train_epochs": "2", "save_strategy": "steps", "save_steps": "0.7"}
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps | given) for rank in (0, 1)]
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends
    whole, history = pair[0].metrics(), pair[0].history()
    name = leave_one_checkpoint(pair[0].base / "checkpoints")
    # Ranks of one host share the folder; here each has its own.
    shutil.rmtree(pair[1].base / "checkpoints")
    shutil.copytree(pair[0].base / "checkpoints", pair[1].base / "checkpoints")
    ends = host.run(*pair)
    assert [end.code for end in ends] == [0, 0], ends
    assert f"checkpoints/{name} (" in ends[0].out
    assert pair[0].metrics()["train_steps"] == whole["train_steps"]
    assert pair[0].metrics()["weights_sha256"] == whole["weights_sha256"]
    assert [(each["step"], each.get("loss")) for each in pair[0].history()] == [
        (each["step"], pytest.approx(each["loss"], abs=1e-5) if "loss" in each else None) for each in history
    ], "as if it had never stopped"


@pytest.mark.parametrize("shorter", [{"num_train_epochs": "1"}, {"max_steps": "20"}], ids=["epochs", "steps"])
@pytest.mark.slow
def test_nothing_left_to_train_is_said(
    shorter: dict[str, str], tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    given = few_steps | {"max_steps": "-1", "num_train_epochs": "2", "save_strategy": "steps", "save_steps": "20"}
    first = new_job(tmp_path / "first", tiny_model, given | {"lr_scheduler_type": "constant"})
    second = new_job(tmp_path / "second", tiny_model, given | {"lr_scheduler_type": "constant"} | shorter)
    (end,) = host.run(first)
    assert "train_loss = " in end.out
    folder = tmp_path / "first/checkpoints/checkpoint-20"
    shutil.copytree(folder, tmp_path / "second/checkpoints/checkpoint-20")
    (end,) = host.run(second)
    assert end.code == 0, end.err
    (line,) = [line for line in end.out.splitlines() if "nothing is left to train" in line]
    assert line.startswith("warning: the checkpoint is at step 20 and the job ends at step ")
    assert "set overwrite_output_dir to true" in line
    assert "train_loss" not in end.out
    assert not {"train_loss", "train_runtime"} & second.metrics().keys()
    written, kept = second.weights(), load_file(folder / "model.safetensors")
    assert all(torch.equal(written[name], kept[name]) for name in kept)


@pytest.mark.parametrize("change", [{"hidden_size": 24}, {"num_hidden_layers": 1}], ids=["model", "optimizer"])
@pytest.mark.slow
def test_checkpoint_of_another_model(
    change: dict[str, int], tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """Weights of another shape do not load; with fewer layers only the optimizer's do not."""
    job = new_job(tmp_path, tiny_model, few_steps | {"save_strategy": "steps", "save_steps": "2"})
    (end,) = host.run(job)
    assert end.code == 0, end.err
    config = BertConfig.from_pretrained(tiny_model, **change)
    BertForQuestionAnswering(config).save_pretrained(tmp_path / "input/data/model")
    (end,) = host.run(job)
    assert end.code == 1
    assert "Traceback" not in end.err
    assert "is of another model or optimizer than this job's: set overwrite_output_dir" in end.err.splitlines()[-1]
