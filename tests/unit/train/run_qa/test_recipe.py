"""Tests the settings of a job, its sample of questions, and the padding of windows."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainingArguments

from berth.contract.errors import JobError
from berth.contract.hyperparameters import HyperparameterError
from berth.qa.squad import Example
from berth.qa.windows import Window
from berth.runtime.rank import Rank
from berth.train.run_qa import export, ranks
from berth.train.run_qa.device import RankEnvironment
from berth.train.run_qa.evaluation import label_loss, length_batches
from berth.train.run_qa.inputs.features import Collator, WindowDataset
from berth.train.run_qa.recipe import Paths, Recipe, TrainingSettings, complete
from berth.train.run_qa.trainer import span_loss

PATHS = Paths(Path("/opt/ml"))
CPU = RankEnvironment(channels=frozenset({"train", "validation"}))
GPU = RankEnvironment(cuda=True, backend="nccl", channels=frozenset({"train", "validation"}))
KEEPS = replace(CPU, keeps_checkpoints=True)
REPORTS = replace(CPU, reporters=frozenset({"tensorboard", "mlflow"}))


def settings(env: RankEnvironment = CPU, **values: Any) -> TrainingSettings:
    return complete(values, PATHS, env)


@pytest.mark.parametrize(
    ("env", "values", "expected"),
    [
        (CPU, {}, {"do_train": True, "do_eval": True, "use_cpu": True, "dataloader_pin_memory": False}),
        (CPU, {}, {"disable_tqdm": True, "report_to": "none", "ddp_find_unused_parameters": False}),
        (CPU, {}, {"train_sampling_strategy": "group_by_length", "save_strategy": "no"}),
        (CPU, {"pad_to_max_length": True}, {"train_sampling_strategy": "random"}),
        (CPU, {"train_sampling_strategy": "sequential"}, {"train_sampling_strategy": "sequential"}),
        (CPU, {"bf16": True}, {"bf16": True, "use_cpu": True}),
        (CPU, {"torch_compile": True, "torch_compile_mode": "default"}, {"torch_compile_mode": None}),
        (CPU, {"torch_compile_backend": "inductor"}, {"torch_compile_backend": None}),
        (CPU, {"ddp_backend": "nccl"}, {"ddp_backend": None}),
        (replace(GPU, capability=(7, 0)), {"fp16": True}, {"fp16": True}),
        (replace(GPU, capability=(8, 0)), {"bf16": True}, {"bf16": True}),
        (replace(GPU, capability=(7, 0)), {"bf16": True, "use_cpu": True}, {"bf16": True}),
        (CPU, {"do_train": False}, {"do_train": False, "do_eval": True}),
        (CPU, {"do_eval": True}, {"do_train": True}),
        (RankEnvironment(), {"dataset_name": "squad"}, {"do_train": True, "do_eval": True}),
        (RankEnvironment(), {"dataset_name": "squad", "do_eval": True}, {"do_train": False}),
        (CPU, {"save_steps": 5.0}, {"save_strategy": "steps", "output_dir": "/opt/ml/checkpoints"}),
        (CPU, {"save_strategy": "epoch", "output_dir": "/opt/ml/model"}, {"output_dir": "/opt/ml/checkpoints"}),
        (CPU, {"save_strategy": "epoch", "output_dir": "/opt/ml/model/run"}, {"output_dir": "/opt/ml/checkpoints"}),
        (CPU, {"save_strategy": "epoch", "output_dir": "/data/run"}, {"output_dir": "/data/run"}),
        (CPU, {"save_strategy": "epoch", "output_dir": "results"}, {"output_dir": "/opt/ml/checkpoints"}),
        (CPU, {"save_strategy": "epoch", "output_dir": "./a/b"}, {"output_dir": "/opt/ml/checkpoints"}),
        (CPU, {"load_best_model_at_end": True}, {"eval_strategy": "epoch", "save_strategy": "epoch"}),
        (CPU, {"load_best_model_at_end": True}, {"metric_for_best_model": "f1", "do_eval": True}),
        (CPU, {"metric_for_best_model": "eval_exact"}, {"metric_for_best_model": "exact_match"}),
        (CPU, {"load_best_model_at_end": True, "save_steps": 50.0}, {"eval_strategy": "steps", "eval_steps": 50.0}),
        (CPU, {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 9.0}, {"save_steps": 9.0}),
        (CPU, {"eval_strategy": "steps"}, {"eval_steps": 500}),
        (CPU, {"lr_scheduler_type": "reduce_lr_on_plateau"}, {"eval_strategy": "epoch"}),
        (KEEPS, {}, {"save_strategy": "epoch", "save_total_limit": 2}),
        # The best one, and two because SageMaker may still upload one.
        (KEEPS, {"load_best_model_at_end": True}, {"save_total_limit": 3}),
        (KEEPS, {"save_strategy": "no"}, {"save_strategy": "no"}),
        (REPORTS, {}, {"report_to": ["tensorboard"]}),
        (REPORTS, {"report_to": "mlflow"}, {"report_to": ["mlflow"]}),
        (REPORTS, {"report_to": "none"}, {"report_to": "none"}),
        (REPORTS, {"do_train": False, "do_eval": True}, {"report_to": "none"}),
        (replace(CPU, reporters=frozenset({"tensorboard"})), {"report_to": "all"}, {"report_to": ["tensorboard"]}),
    ],
)
def test_complete_fills_in_settings(env: RankEnvironment, values: dict[str, Any], expected: dict[str, Any]) -> None:
    training = settings(env, **values).training
    assert {name: training.get(name) for name in expected} == expected


def test_export_check_refuses_too_few_questions() -> None:
    few, enough = ({"train": 1, "validation": count} for count in (499, 500))
    with pytest.raises(
        HyperparameterError, match=r"there are only 499 questions to measure its loss, .*int8_few_questions"
    ):
        export.check(Recipe(export_int8=True), few)
    export.check(Recipe(export_int8=True), enough)
    export.check(Recipe(export_int8=True, int8_few_questions=True), few)
    export.check(Recipe(), few)
    export.check(Recipe(export_int8=True), {"validation": 1})


@pytest.mark.parametrize(
    "values", [{"eval_strategy": "epoch"}, {"load_best_model_at_end": True}, {"lr_scheduler_type": "greedy"}]
)
def test_evaluation_during_training_overrides_do_eval_false(values: dict[str, Any]) -> None:
    completed = settings(do_eval=False, **values)
    assert completed.training["do_eval"] is True
    assert "do_eval: true, because the settings ask for evaluation during training" in completed.notes
    assert "tasks: train, eval" in completed.notes
    assert settings(do_eval=False, eval_strategy="no").training["do_eval"] is False


@pytest.mark.parametrize(
    ("values", "name", "why"),
    [
        (
            {"do_train": False, "load_best_model_at_end": True, "eval_strategy": "epoch"},
            "load_best_model_at_end",
            "this job does not train",
        ),
        ({"enable_jit_checkpoint": True}, "enable_jit_checkpoint", ""),
    ],
    ids=["load_best_model_at_end without training", "enable_jit_checkpoint"],
)
def test_ignored_setting_is_noted(values: dict[str, Any], name: str, why: str) -> None:
    completed = settings(**values)
    assert getattr(TrainingArguments(**completed.training), name) is False
    assert any(note.startswith(f"{name}: ignored, {why}") for note in completed.notes)


def test_fsdp_is_kept_on_gpus_and_dropped_on_cpus() -> None:
    env = RankEnvironment(world_size=2, cuda=True, channels=CPU.channels)
    assert settings(env, fsdp="full_shard").training["fsdp"] == "full_shard"
    cpus = RankEnvironment(world_size=2, channels=CPU.channels)
    for completed in (
        settings(cpus, fsdp="full_shard", fsdp_config={"min_num_params": 1}),
        settings(replace(env, backend="nccl"), fsdp=True, use_cpu=True),
    ):
        assert not completed.training.keys() & {"fsdp", "fsdp_config"}
        assert any(warning.startswith("fsdp has no effect") for warning in completed.warnings)
    assert settings(cpus, fsdp=False).warnings == []


@pytest.mark.parametrize(
    ("folder", "given", "seconds", "kept"),
    [
        (True, {}, 600, "uploaded"),
        (True, {"save_minutes": 2.5}, 150, "uploaded"),
        (True, {"save_minutes": 0}, 0, "uploaded"),
        (True, {"save_steps": 50}, 0, "uploaded"),
        (True, {"save_strategy": "epoch"}, 0, "uploaded"),
        (True, {"save_strategy": "steps", "save_minutes": 5}, 300, "uploaded"),
        (True, {"load_best_model_at_end": True}, 600, "uploaded"),
        (True, {"save_strategy": "no"}, 0, "not"),
        (False, {}, 0, "not"),
        (False, {"save_minutes": 5}, 0, "not"),
        (False, {"save_strategy": "epoch"}, 0, "not"),
        (False, {"save_strategy": "epoch", "output_dir": "/mnt/shared"}, 0, "perhaps"),
        (True, {"save_strategy": "epoch", "output_dir": "/mnt/shared"}, 0, "perhaps"),
    ],
)
def test_save_seconds_and_whether_checkpoints_outlive_the_job(
    folder: bool, given: dict[str, Any], seconds: float, kept: str
) -> None:
    env = RankEnvironment(channels=CPU.channels, keeps_checkpoints=folder)
    completed = settings(env, **given)
    names = {(True, True): "uploaded", (True, False): "perhaps", (False, False): "not"}
    assert (completed.save_seconds, names[completed.keeps_checkpoints, completed.uploads_checkpoints]) == (
        seconds,
        kept,
    )


@pytest.mark.parametrize("name", ["fp16", "fp16_full_eval", "tf32"])
def test_gpu_only_settings_are_dropped_on_a_cpu(name: str) -> None:
    completed = settings(CPU, **{name: True})
    assert name not in completed.training
    assert any(warning.startswith(f"{name} needs a GPU") for warning in completed.warnings)
    assert settings(GPU, **{name: True}).training[name] is True
    assert name not in settings(GPU, use_cpu=True, **{name: True}).training


def test_sample_is_random_and_repeatable() -> None:
    examples = [Example(f"q{number}", "who", "ann", ()) for number in range(1000)]
    samples: list[list[Example]] = [[], [], [], []]
    first, again, whole, empty = samples
    for most, sample in zip((50, 50, 5000, 0), samples, strict=True):
        assert list(export.sampled(examples, most, sample)) == examples
    assert first == again
    numbers = sorted(int(example.id[1:]) for example in first)
    assert len(set(numbers)) == 50
    assert 300 < sum(numbers) / 50 < 700, "the sample must not come from one part of the data"
    assert whole == examples
    assert empty == []


def test_reporter_that_is_not_installed_is_dropped_with_a_warning() -> None:
    completed = settings(report_to=["tensorboard"])
    assert completed.training["report_to"] == "none"
    assert completed.warnings == ["report_to tensorboard is not installed in this image: the job continues without it"]


@pytest.mark.parametrize(
    ("cuda", "compiler", "use_cpu", "missing"),
    [
        (True, True, False, ""),
        (True, False, False, "a C compiler for Triton, and this image has none"),
        (True, True, True, "a GPU, and this job uses none"),
        (False, True, False, "a GPU, and this job uses none"),
    ],
)
def test_torch_compile_needs_a_gpu_and_a_compiler(cuda: bool, compiler: bool, use_cpu: bool, missing: str) -> None:
    env = RankEnvironment(channels=CPU.channels, cuda=cuda, compiler=compiler)
    completed = settings(env, torch_compile=True, **({"use_cpu": True} if use_cpu else {}))
    assert completed.training.get("torch_compile", False) is not bool(missing)
    warnings = [warning for warning in completed.warnings if "torch_compile" in warning]
    assert warnings == ([f"torch_compile needs {missing}: the job continues without it"] if missing else [])


@pytest.mark.parametrize(
    ("env", "values", "name", "value"),
    [
        (GPU, {}, "backend", "nccl"),
        (GPU, {"ddp_timeout": 60}, "timeout", 60),
        (GPU, {"use_cpu": True}, "backend", "gloo"),
        (CPU, {}, "resume", True),
        (CPU, {"overwrite_output_dir": True}, "resume", False),
        (CPU, {"resume_from_checkpoint": "/x"}, "resume", "/x"),
        (CPU, {"resume_from_checkpoint": False}, "resume", False),
    ],
)
def test_backend_timeout_and_resume(env: RankEnvironment, values: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(settings(env, **values), name) == value


INT8 = {"export_int8": True}


@pytest.mark.parametrize(
    ("env", "values", "sentence"),
    [
        (RankEnvironment(), {}, "There is nothing to do"),
        (CPU, {"metric_for_best_model": "accuracy"}, "metric_for_best_model is 'accuracy'"),
        (CPU, {"doc_stride": 384}, "doc_stride is 384"),
        (CPU, {"save_minutes": -1.0}, "save_minutes is -1.0 and must be at least 0"),
        (CPU, {"save_minutes": float("nan")}, "save_minutes is nan and must be at least 0"),
        (CPU, {"save_minutes": float("inf")}, "save_minutes is inf and must be at least 0"),
        (CPU, {"log_seconds": -1.0}, "log_seconds is -1.0 and must be at least 0"),
        (CPU, {"log_seconds": float("nan")}, "log_seconds is nan and must be at least 0"),
        (CPU, {"n_best_size": 0, "hidden_dropout_prob": 1.0}, "n_best_size is 0 and must be at least 1; hidden"),
        (CPU, {"per_device_train_batch_size": 0}, "per_device_train_batch_size is 0 and must be at least 1"),
        (CPU, {"per_device_eval_batch_size": -1}, "per_device_eval_batch_size is -1 and must be at least 1"),
        (CPU, {"gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0 and must be at least 1"),
        (
            CPU,
            {"seed": -1, "data_seed": 1 << 32},
            "seed is -1 and must be from 0 to 4294967295; data_seed is 4294967296",
        ),
        (replace(GPU, capability=(7, 0)), {"bf16": True}, "bf16 needs a GPU of compute capability 8.0 or newer, and"),
        (replace(GPU, capability=(7, 5)), {"bf16_full_eval": True}, "this host's has 7.5: use fp16, or leave it out"),
        (replace(GPU, capability=(5, 2)), {"fp16": True}, "fp16 needs a GPU of compute capability 5.3 or newer, and"),
        (CPU, {"fsdp": "full_shard"}, "fsdp shards the model over ranks, and this job has one: leave it out"),
        (replace(CPU, channels=frozenset({"train"})), INT8, "export_int8 is measured on validation questions"),
        (CPU, INT8 | {"do_eval": False}, "export_int8 is measured on validation questions"),
        (CPU, INT8 | {"export_openvino": False}, "export_int8 quantises the graph that export_openvino writes"),
        (CPU, INT8 | {"int8_max_f1_loss": -0.1}, "int8_max_f1_loss is -0.1 and must be at least 0"),
        (CPU, INT8 | {"int8_max_f1_loss": float("nan")}, "int8_max_f1_loss is nan and must be at least 0"),
    ],
)
def test_invalid_settings_are_refused(env: RankEnvironment, values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HyperparameterError, match=re.escape(sentence)):
        settings(env, **values)


def window(length: int, start: int | None = None, end: int | None = None) -> Window:
    pairs = np.zeros((length, 2), np.int32)
    return Window(0, np.arange(1, length + 1, dtype=np.int32), None, pairs, pairs, 2, length, start, end)


def test_collator_pads() -> None:
    dataset = WindowDataset([window(3, 1, 2), window(5, 0, 0)])
    items = [dataset[0], dataset[1]]
    batch = Collator(pad_token_id=9)(items)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 9, 9], [1, 2, 3, 4, 5]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert batch["start_positions"].tolist() == [1, 0]
    assert set(batch) == {"input_ids", "attention_mask", "start_positions", "end_positions"}
    assert Collator(9, length=8)(items)["input_ids"].shape == (2, 8)
    assert Collator(9, multiple=4)(items)["input_ids"].shape == (2, 8)


def test_loss_ignores_padding() -> None:
    """The loss of a padded batch equals the mean loss of its rows without padding, which the evaluation measures."""
    torch.manual_seed(1)
    start, end = torch.randn(2, 6), torch.randn(2, 6)
    lengths, first, last = [4, 6], [1, 5], [3, 5]
    mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
    together = span_loss(start, end, mask, torch.tensor(first), torch.tensor(last))
    windows = [window(size, at, to) for size, at, to in zip(lengths, first, last, strict=True)]
    rows = [[part[row, :size].numpy() for row, size in enumerate(lengths)] for part in (start, end)]
    assert together.item() == pytest.approx(label_loss(windows, *rows), abs=1e-6)
    start[0, 4:] = 100.0
    assert span_loss(start, end, mask, torch.tensor(first), torch.tensor(last)).item() == pytest.approx(together.item())


def test_length_batches_contain_every_window_once() -> None:
    batches = length_batches(np.array([5, 9, 2, 7, 1]), 2)
    assert [batch.tolist() for batch in batches] == [[1, 3], [0, 2], [4]]


def test_unwrapped_model_is_refused_on_several_ranks() -> None:
    bare = torch.nn.Linear(1, 1)
    ranks.check_wrapped(Rank(), bare)
    with pytest.raises(JobError, match="Linear and not wrapped"):
        ranks.check_wrapped(Rank(1, 1, 2, 2), bare)


@pytest.mark.parametrize(
    ("hyperparameters", "cuda", "launcher", "backend", "warned"),
    [
        ({}, True, "smddp", "smddp", False),
        ({}, False, "smddp", "smddp", False),
        ({"ddp_backend": "smddp"}, True, "smddp", "smddp", False),
        ({"ddp_backend": "nccl"}, True, "smddp", "nccl", False),
        ({"use_cpu": True}, True, "smddp", "gloo", False),
        ({"ddp_backend": "smddp"}, True, "nccl", "nccl", True),
        ({"ddp_backend": "smddp"}, False, "gloo", "gloo", True),
        ({"ddp_backend": "nccl"}, False, "smddp", "gloo", True),
    ],
)
def test_choose_backend(hyperparameters: dict[str, Any], cuda: bool, launcher: str, backend: str, warned: bool) -> None:
    env = RankEnvironment(world_size=2, cuda=cuda, backend=launcher, channels=CPU.channels)
    completed = settings(env, **hyperparameters)
    assert completed.backend == backend
    assert any("ddp_backend" in warning for warning in completed.warnings) == warned
    assert "ddp_backend" not in completed.training
