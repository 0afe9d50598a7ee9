"""Tests jobs whose learning rate, schedule or length differs from their checkpoint's."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, TrainingArguments, get_scheduler

from berth.contract.errors import JobError
from berth.train.run_qa.checkpoints import recipe_changes
from berth.train.run_qa.checkpoints.checkpoint_folder import Checkpoint
from berth.train.run_qa.checkpoints.manifest import MANIFEST, CheckpointManifest

GIVEN = {
    "do_train": "true",
    "per_device_train_batch_size": "2",
    "max_steps": "6",
    "save_strategy": "steps",
    "save_steps": "3",
    "logging_steps": "1",
    "max_seq_length": "48",
    "doc_stride": "8",
    "learning_rate": "0.001",
    "warmup_steps": "2",
    "export_openvino": "false",
}
CHANGED = {"learning_rate": "0.0007", "warmup_steps": "5", "max_steps": "9", "weight_decay": "0.1", "adam_beta2": "0.9"}
CHANGE_STEP = 3

# The reference: one training with the rates and options of GIVEN up to CHANGE_STEP, and those of CHANGED afterwards.
FORCED = f"""
import transformers.trainer
class Forced(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, optimizer=None, **others):
        step = state.global_step
        rate, warmup, last = (0.001, 2, 6) if step < {CHANGE_STEP} else (0.0007, 5, 9)
        factor = step / warmup if step < warmup else (last - step) / (last - warmup)
        for group, decays in zip(optimizer.param_groups, (True, False)):
            group["lr"] = rate * factor
            group["weight_decay"] = 0.1 if decays and step >= {CHANGE_STEP} else 0.0
            group["betas"] = (0.9, 0.999 if step < {CHANGE_STEP} else 0.9)
transformers.trainer.DEFAULT_CALLBACKS.append(Forced)
"""


def rates(job: Any) -> dict[int, float]:
    """The learning rate of each step in history.json."""
    return {entry["step"]: entry["learning_rate"] for entry in job.history() if "learning_rate" in entry}


def run(host: Any, *jobs: Any) -> str:
    ends = host.run(*jobs)
    return str(ends[0].out + ends[0].err)


@pytest.fixture
def encoder(tmp_path: Path, tiny_model: Path) -> Path:
    """The tiny model without its answer head, like most models of the hub."""
    folder = Path(shutil.copytree(tiny_model, tmp_path / "encoder"))
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if not name.startswith("qa_outputs")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.nightly), 2])
@pytest.mark.slow
def test_changed_settings_apply_from_the_checkpoint_on(
    ranks: int, tmp_path: Path, encoder: Path, host: Any, new_job: Any
) -> None:
    first, second, reference = (
        [new_job(tmp_path / name / str(rank), encoder, given) for rank in range(ranks)]
        for name, given in (("first", GIVEN), ("second", GIVEN | CHANGED), ("reference", GIVEN | CHANGED))
    )
    assert "model: qa_outputs starts from random weights" in run(host, *first)
    for job in second:
        job.resume_from(first[0].checkpoints()[0])
    log = run(host, *second)
    for job in reference:
        job.before = FORCED
    run(host, *reference)
    assert second[0].metrics()["weights_sha256"] == reference[0].metrics()["weights_sha256"]
    assert {step: rates(second[0])[step] for step in (4, 9)} == {
        4: pytest.approx(0.0007 * 3 / 5),
        9: pytest.approx(0.0007 * 1 / 4),
    }
    for change in (
        "learning_rate: 0.001 → 0.0007",
        "weight_decay: 0.0 → 0.1",
        "adam_beta2: 0.999 → 0.9",
        "warmup_steps: 2 → 5",
        "max_steps: 6 → 9",
    ):
        assert f"{change} from step 4 on" in log
    assert log.count(" → ") == 5
    assert "random weights" not in log


@pytest.mark.slow
def test_resume_from_trainers_checkpoint_is_exact_or_longer(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any
) -> None:
    """The last job resumes at the end of a schedule, with a higher max_steps."""
    uninterrupted = new_job(tmp_path / "uninterrupted", tiny_model, GIVEN)
    run(host, uninterrupted)
    middle, end = uninterrupted.checkpoints()
    (middle / MANIFEST).unlink()
    same = new_job(tmp_path / "same", tiny_model, GIVEN)
    same.resume_from(middle.rename(middle.with_name("checkpoint-3")))
    log = run(host, same)
    assert same.metrics()["weights_sha256"] == uninterrupted.metrics()["weights_sha256"]
    assert "the checkpoint does not record its learning rate" in log
    assert " → " not in log
    longer = new_job(tmp_path / "longer", tiny_model, GIVEN | {"max_steps": "8", "learning_rate": "0.003"})
    longer.resume_from(end)
    log = run(host, longer)
    assert "learning_rate: 0.001 → 0.003 from step 7 on" in log
    assert "max_steps: 6 → 8 from step 7 on" in log
    assert [rates(longer)[step] for step in (7, 8)] == pytest.approx([0.003 * 2 / 6, 0.003 * 1 / 6])


@pytest.mark.slow
def test_another_optimizer_is_refused(tmp_path: Path, tiny_model: Path, host: Any, new_job: Any) -> None:
    """The recorded recipe names the optimizer. Without a record, the state lacks what this optimizer needs."""
    job = new_job(tmp_path, tiny_model, GIVEN | {"max_steps": "1", "save_steps": "1", "do_eval": "false"})
    run(host, job)
    (saved,) = job.checkpoints()
    settings = tmp_path / "input/config/hyperparameters.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"optim": "sgd", "max_steps": "2"}))
    (end,) = host.run(job, code=1)
    assert f"The checkpoint {saved} was written with optim adamw_torch_fused and this job's is sgd" in end.err
    content = json.loads((saved / MANIFEST).read_text())
    (saved / MANIFEST).write_text(json.dumps(content | {"recipe": {}}))
    (end,) = host.run(job, code=1)
    assert f"{saved} is from another model or optimizer" in end.err
    assert "Traceback" not in end.err


def arguments(tmp_path: Path, **given: Any) -> TrainingArguments:
    return TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", **given)


def test_recorded_recipe_survives_json(tmp_path: Path) -> None:
    settings = {"lr_scheduler_type": "cosine_with_restarts", "lr_scheduler_kwargs": {"num_cycles": 2}, "max_steps": 40}
    recipe = recipe_changes.recipe(arguments(tmp_path, warmup_steps=0.1, **settings), BertConfig(), 40)
    assert recipe_changes.changes(json.loads(json.dumps(recipe)), recipe) == []
    wanted = settings | {"warmup_steps": 4, "num_train_epochs": None, "hidden_dropout_prob": 0.1, "weight_decay": 0.0}
    assert {name: recipe[name] for name in wanted} == wanted


def test_fused_optimizer_resumes_from_unfused_and_logs_it(tmp_path: Path) -> None:
    old = recipe_changes.recipe(arguments(tmp_path, optim="adamw_torch"), BertConfig(), 5)
    new = recipe_changes.recipe(arguments(tmp_path, optim="adamw_torch_fused"), BertConfig(), 5)
    assert recipe_changes.lines(old, new, 2) == [
        "optim: continues with the checkpoint's adamw_torch, another implementation of adamw_torch_fused"
    ]


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ({"optim": "adamw_torch"}, {"optim": "adafactor"}, "optim adamw_torch and this job's is adafactor"),
        ({"optim": "sgd"}, {"optim": "sgd", "optim_args": "momentum=0.9"}, "optim_args none and this job's is mom"),
        ({"optim": "adamw_torch"}, {"optim": "adamw_torch_fused"}, None),
    ],
)
def test_check_optimizer_refuses_only_another_kind(
    old: dict[str, str], new: dict[str, str], name: str | None, tmp_path: Path
) -> None:
    written = recipe_changes.recipe(arguments(tmp_path, **old), BertConfig(), 5)
    checkpoint = Checkpoint(tmp_path, 1, CheckpointManifest(*[1] * 6, {}, written))
    if name is None:
        recipe_changes.check_optimizer(checkpoint, arguments(tmp_path, **new))
        return
    with pytest.raises(JobError, match=name):
        recipe_changes.check_optimizer(checkpoint, arguments(tmp_path, **new))


def optimizer_and_scheduler(kind: str, rate: float, steps: int) -> tuple[torch.optim.Optimizer, Any]:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.AdamW([{"params": [weight]} for weight in weights], lr=rate)
    options = {"num_decay_steps": 3} if kind == "warmup_stable_decay" else {}
    return optimizer, get_scheduler(kind, optimizer, 2, steps, options)


@pytest.mark.parametrize(
    "kind",
    [
        *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup"),
        *("inverse_sqrt", "warmup_stable_decay"),
    ],
)
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_restored_schedule_equals_one_from_the_first_step(kind: str) -> None:
    _, before = optimizer_and_scheduler("linear", 0.1, 6)
    _, reference = optimizer_and_scheduler(kind, 0.02, 9)
    for _ in range(4):
        before.step()
        reference.step()
    optimizer, scheduler = optimizer_and_scheduler(kind, 0.02, 9)
    recipe_changes.restore_schedule(scheduler, optimizer, before.state_dict(), 4, [0.0, 0.0], [])
    for _ in range(3):
        assert scheduler.get_last_lr() == reference.get_last_lr()
        assert [group["lr"] for group in optimizer.param_groups] == reference.get_last_lr()
        assert scheduler.last_epoch == reference.last_epoch
        scheduler.step()
        reference.step()


def test_plateau_schedule_keeps_its_state_unless_its_settings_change() -> None:
    """It keeps its measurements if only the length changed. It takes no state from a schedule that counts steps, and
    gives it none.
    """
    restore = recipe_changes.restore_schedule
    _, scheduler = optimizer_and_scheduler("reduce_lr_on_plateau", 0.1, 9)
    scheduler.step(0.5)
    measured = scheduler.state_dict()
    _, by_steps = optimizer_and_scheduler("linear", 0.1, 6)
    for written, changed, best, rate in (
        (measured, ["max_steps"], 0.5, 0.02),
        (measured, ["learning_rate"], float("inf"), 0.03),
        (by_steps.state_dict(), [], float("inf"), 0.03),
    ):
        optimizer, scheduler = optimizer_and_scheduler("reduce_lr_on_plateau", 0.02, 9)
        restore(scheduler, optimizer, written, 4, [0.03, 0.03], changed)
        assert (scheduler.best, optimizer.param_groups[0]["lr"]) == (best, rate)
    recipe = {"learning_rate": 0.02, "lr_scheduler_type": "reduce_lr_on_plateau", "max_steps": 6}
    assert recipe_changes.lines(recipe | {"learning_rate": 0.1}, recipe, 6) == [
        "learning_rate: 0.1 → 0.02 from step 7 on",
        "the schedule follows the evaluations, and starts again from this job's learning_rate",
    ]
    optimizer, linear = optimizer_and_scheduler("linear", 0.1, 10)
    restore(linear, optimizer, measured, 6, [0.0, 0.0], [])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 4 / 8)
