"""Parses every hyperparameter in every encoding that clients send, deprecated names, and invalid values.

The encodings are those seen from SDK v2 (plain and framework estimators) and v3, with values that notebooks had encoded
themselves before.
"""

import dataclasses
import json
import types
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from transformers import TrainingArguments

from berth.contract.deprecated import DEPRECATED_NAMES
from berth.contract.hyperparameters import UNSET, HyperparameterError, Option, decode, parse
from berth.train.run_qa.recipe import Recipe, options

OPTIONS = options(TrainingArguments)
ENCODINGS: dict[str, Callable[[Any], str]] = {
    "plain estimator": str,
    "framework estimator": json.dumps,
    "encoded by the notebook, plain": lambda value: str(json.dumps(value)),
    "encoded by the notebook, framework": lambda value: json.dumps(json.dumps(value)),
    "encoded twice by the notebook": lambda value: json.dumps(json.dumps(json.dumps(value))),
}


def samples(option: Option) -> list[Any]:
    """Values of an option's declared type, including difficult ones."""
    if option.choices:
        return list(option.choices)
    members, simple_types = [option.type], []
    while members:
        member = members.pop()
        if get_origin(member) in (Union, types.UnionType):
            members += get_args(member)
        else:
            simple_types.append(member)
    values: list[Any] = []
    for member in simple_types:
        if isinstance(member, type) and issubclass(member, Enum):
            return [each.value for each in member]
        if member is bool:
            values += [True, False]
        elif member is int:
            values += [0, 42, -1]
        elif member is float:
            values += [3e-05, 0.0, 3.0, 1e-08]
        elif member is str and bool not in simple_types:
            values += ["123", "bert", "a b 'q' $HOME", "ünï", "-1.5"]
        elif member is dict or get_origin(member) is dict:
            values += [{"a": 1, "b": {"c": "d"}}, {}]
        elif get_origin(member) is list and get_args(member) == (str,):
            values += [["a", "b"], []]
        elif get_origin(member) is Literal:
            values += list(get_args(member))
        elif dataclasses.is_dataclass(member):
            values += [{"tp_size": 1}]
    return values


CASES = [
    pytest.param(option, value, encode, id=f"{name}-{value!r}-{kind}")
    for name, option in OPTIONS.items()
    for value in samples(option)
    for kind, encode in ENCODINGS.items()
]


def test_cases_include_every_option() -> None:
    known = {spec.name for cls in (TrainingArguments, Recipe) for spec in dataclasses.fields(cls)}
    assert set(OPTIONS) == known
    assert {case.values[0].name for case in CASES} == known  # type: ignore[union-attr]


def test_decode_every_value_in_every_encoding() -> None:
    """One test for thousands of cases, because a test each would take longer."""
    wrong = []
    for case in CASES:
        option, value, encode = case.values
        read = decode(encode(value), option.type, option.choices)  # type: ignore[union-attr,operator]
        if dataclasses.is_dataclass(read):
            read = {"tp_size": read.tp_size}
        if read != value or type(read) is not type(value):
            wrong.append((case.id, read))
    assert wrong == []
    assert len(CASES) > 1500


@pytest.mark.parametrize("text", ["None", "null", "", '""', '"null"', '"None"'])
@pytest.mark.parametrize("name", ["max_train_samples", "resume_from_checkpoint", "token", "fp16", "max_steps"])
def test_none_leaves_the_default(name: str, text: str) -> None:
    assert decode(text, OPTIONS[name].type) is UNSET
    assert parse({name: text}, OPTIONS, DEPRECATED_NAMES).values == {}


@pytest.mark.parametrize(
    ("text", "declared", "value"),
    [
        ("42.0", int, 42),
        ("1e3", int, 1000),
        ('"42"', int, 42),
        ('"unfinished', str, '"unfinished'),
        ('"a" and "b"', str, '"a" and "b"'),
        ("3", float, 3.0),
        ("1", bool, True),
        ("No", bool, False),
        ('"True"', bool, True),
        ("{'a': 1, 'b': True}", dict, {"a": 1, "b": True}),
        ("['a', 'b']", list[str] | None, ["a", "b"]),
        ("start_positions, end_positions", list[str] | None, ["start_positions", "end_positions"]),
        ("[1, 2]", list[int], [1, 2]),
        ("config.json", dict[str, Any] | str, "config.json"),
        (True, bool, True),
        (7, int, 7),
        (None, int | None, UNSET),
        ("IntervalStrategy.EPOCH", OPTIONS["eval_strategy"].type, "epoch"),
        ("EPOCH", OPTIONS["eval_strategy"].type, "epoch"),
        ("false", OPTIONS["fsdp"].type, False),
        ("full_shard auto_wrap", OPTIONS["fsdp"].type, "full_shard auto_wrap"),
        ("/a/checkpoint-5", OPTIONS["resume_from_checkpoint"].type, "/a/checkpoint-5"),
    ],
)
def test_decode_by_declared_type(text: Any, declared: Any, value: Any) -> None:
    read = decode(text, declared)
    assert read == value
    assert type(read) is type(value)


# Deprecated name → (value, its replacement)
OLD: dict[str, tuple[Any, dict[str, Any]]] = {
    "evaluation_strategy": ("steps", {"eval_strategy": "steps"}),
    "no_cuda": (True, {"use_cpu": True}),
    "gradient_checkpointing": (True, {"activation_checkpointing": True}),
    "gradient_checkpointing_kwargs": ({"a": 1}, {"activation_checkpointing_kwargs": {"a": 1}}),
    "per_gpu_train_batch_size": (4, {"per_device_train_batch_size": 4}),
    "per_gpu_eval_batch_size": (4, {"per_device_eval_batch_size": 4}),
    "train_batch_size": (32, {"per_device_train_batch_size": 32}),
    "eval_batch_size": (64, {"per_device_eval_batch_size": 64}),
    "epochs": (1, {"num_train_epochs": 1.0}),
    "push_to_hub_model_id": ("me/model", {"hub_model_id": "me/model"}),
    "push_to_hub_token": ("x", {"hub_token": "x"}),
    "use_auth_token": ("x", {"token": "x"}),
    "revision": ("main", {"model_revision": "main"}),
    "model_name": ("123", {"model_name_or_path": "123"}),
    "predict_file": ("dev.json", {"validation_file": "dev.json"}),
    "max_val_samples": (10, {"max_eval_samples": 10}),
    "group_by_length": (True, {"train_sampling_strategy": "group_by_length"}),
    "adafactor": (True, {"optim": "adafactor"}),
    "warmup_ratio": (0.1, {"warmup_steps": 0.1}),
    "fsdp_min_num_params": (100, {"fsdp_config": {"min_num_params": 100}}),
    "fsdp_transformer_layer_cls_to_wrap": ("A", {"fsdp_config": {"transformer_layer_cls_to_wrap": ["A"]}}),
    "dispatch_batches": (False, {"accelerator_config": {"dispatch_batches": False}}),
    "split_batches": (True, {"accelerator_config": {"split_batches": True}}),
    "half_precision_backend": ("auto", {}),
    "fp16_backend": ("amp", {}),
    "save_safetensors": (True, {}),
    "sharded_ddp": (False, {}),
    "mp_parameters": ({}, {}),
}
DROPPED = sorted(set(DEPRECATED_NAMES) - set(OLD))


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=list(ENCODINGS))
@pytest.mark.parametrize("name", OLD)
def test_deprecated_names_are_replaced(name: str, encode: Callable[[Any], str]) -> None:
    value, becomes = OLD[name]
    parsed = parse({name: encode(value)}, OPTIONS, DEPRECATED_NAMES)
    assert parsed.values == becomes
    assert len(parsed.notes) == 1, "the log has one line"
    assert parsed.notes[0].startswith(f"{name}: ")


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=list(ENCODINGS))
@pytest.mark.parametrize("name", DROPPED)
def test_ignored_names_are_logged(name: str, encode: Callable[[Any], str]) -> None:
    for value in (True, 1, "O1"):
        parsed = parse({name: encode(value)}, OPTIONS, DEPRECATED_NAMES)
        assert parsed.values == {}
        assert parsed.notes[0].startswith(f"{name}: ignored, ")


@pytest.mark.parametrize(
    ("hyperparameters", "values"),
    [
        ({"group_by_length": "false"}, {"train_sampling_strategy": "random"}),
        ({"adafactor": "false"}, {}),
        ({"warmup_ratio": "0.0"}, {"warmup_steps": 0.0}),
        ({"warmup_ratio": "0.1", "warmup_steps": "0"}, {"warmup_steps": 0.1}),
        ({"warmup_ratio": "0.1", "warmup_steps": "100"}, {"warmup_steps": 100.0}),
        ({"report_to": '["None"]'}, {"report_to": []}),
        ({"report_to": '["wandb", null]'}, {"report_to": ["wandb"]}),
        ({"evaluation_strategy": "epoch", "eval_strategy": "no"}, {"eval_strategy": "no"}),
        (
            {"fsdp_min_num_params": "1", "fsdp_transformer_layer_cls_to_wrap": "A"},
            {"fsdp_config": {"min_num_params": 1, "transformer_layer_cls_to_wrap": ["A"]}},
        ),
        ({"per-device-train-batch-size": "3"}, {"per_device_train_batch_size": 3}),
        ({"processes_per_host": "2"}, {}),
        ({"no_cuda": "None"}, {}),
        ({"optim": "adamw_hf"}, {"optim": "adamw_torch"}),
        ({"optim": '"adamw_hf"'}, {"optim": "adamw_torch"}),
        ({"optim": "sgd"}, {"optim": "sgd"}),
    ],
)
def test_parsed_values(hyperparameters: dict[str, str], values: dict[str, Any]) -> None:
    assert parse(hyperparameters, OPTIONS, DEPRECATED_NAMES).values == values


@pytest.mark.parametrize(
    ("hyperparameters", "notes"),
    [
        ({"warmup_ratio": "0.1", "warmup_steps": "0"}, ["warmup_ratio: taken as warmup_steps 0.1 of all steps"]),
        ({"warmup_ratio": "0.1", "warmup_steps": "9"}, ["warmup_ratio: ignored, warmup_steps is given"]),
        (
            {"evaluation_strategy": "epoch", "eval_strategy": "no"},
            ["evaluation_strategy: ignored, eval_strategy is given"],
        ),
        (
            {"train_batch_size": "4", "per_gpu_train_batch_size": "8"},
            [
                "train_batch_size: taken as per_device_train_batch_size",
                "per_gpu_train_batch_size: ignored, per_device_train_batch_size is given",
            ],
        ),
        (
            {"fsdp_min_num_params": "1", "fsdp_config": '{"a": 1}'},
            ["fsdp_min_num_params: taken as min_num_params of fsdp_config"],
        ),
        (
            {"fsdp_min_num_params": "1", "fsdp_config": '{"min_num_params": 2}'},
            ["fsdp_min_num_params: ignored, fsdp_config is given"],
        ),
    ],
)
def test_notes_name_replacements(hyperparameters: dict[str, str], notes: list[str]) -> None:
    assert parse(hyperparameters, OPTIONS, DEPRECATED_NAMES).notes == notes
    backwards = parse(dict(reversed(hyperparameters.items())), OPTIONS, DEPRECATED_NAMES)
    assert len(backwards.notes) == len(notes)


def test_warmup_ratio_1_is_all_steps() -> None:
    """warmup_steps 1 would be one step; a ratio of 1 is all of them."""
    steps = parse({"warmup_ratio": "1.0"}, OPTIONS, DEPRECATED_NAMES).values["warmup_steps"]
    assert TrainingArguments(warmup_steps=steps, use_cpu=True).get_warmup_steps(1000) == 1000


PLATFORM = {
    "sagemaker_program": '"train.py"',
    "sagemaker_submit_directory": '"s3://bucket/code.tar.gz"',
    "sagemaker_container_log_level": "20",
    "sagemaker_job_name": '"job"',
    "sagemaker_region": '"eu-west-1"',
    "sagemaker_mpi_enabled": "true",
    "sagemaker_parameter_server_enabled": "false",
    "_tuning_objective_metric": "f1",
}


def test_platform_keys_are_ignored() -> None:
    parsed = parse(PLATFORM | {"seed": "1"}, OPTIONS, DEPRECATED_NAMES)
    assert parsed.values == {"seed": 1}
    assert parsed.notes == []


MISTAKES = [
    ({"learning_rat": "1"}, "learning_rat is not known (did you mean learning_rate?)"),
    ({"per_device_train_batch": "4"}, "is not known (did you mean per_device_train_batch_size?)"),
    ({"zzz": "4"}, "zzz is not known; fix"),
    ({"max_steps": "3.5"}, "max_steps '3.5' is not a whole number"),
    ({"learning_rate": "fast"}, "learning_rate 'fast' is not a number"),
    ({"learning_rate": "nan"}, "learning_rate 'nan' is not a number"),
    ({"learning_rate": "inf"}, "learning_rate 'inf' is not finite: give a number"),
    ({"max_grad_norm": "-1e999"}, "max_grad_norm '-1e999' is not finite"),
    ({"do_train": "maybe"}, "do_train 'maybe' is not a yes or no: give true or false"),
    ({"eval_strategy": "epochs"}, "eval_strategy 'epochs' is not one of no, steps, epoch (did you mean epoch?)"),
    ({"evaluation_strategy": "epochs"}, "evaluation_strategy 'epochs' is not one of no, steps, epoch"),
    ({"train_sampling_strategy": "grouped"}, "train_sampling_strategy 'grouped' is not one of random, "),
    ({"lr_scheduler_kwargs": "{a"}, "lr_scheduler_kwargs '{a' is not a JSON object"),
    ({"label_names": "[a"}, "label_names '[a' is not a JSON list"),
    ({"parallelism_config": '{"no_such": 1}'}, "parallelism_config"),
    ({"warmup_ratio": "2"}, "warmup_ratio 2.0 is not between 0 and 1"),
    ({"sharded_ddp": "simple"}, "sharded_ddp no longer exists: use fsdp instead"),
    ({"half_precision_backend": "apex"}, "half_precision_backend can't be apex"),
    ({"mp_parameters": '{"partitions": 2}'}, "mp_parameters asks for model parallelism"),
]


@pytest.mark.parametrize(("hyperparameters", "sentence"), MISTAKES)
def test_invalid_hyperparameters(hyperparameters: dict[str, str], sentence: str) -> None:
    with pytest.raises(HyperparameterError) as caught:
        parse(hyperparameters, OPTIONS, DEPRECATED_NAMES)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(HyperparameterError) as caught:
        parse({"learning_rat": "1", "seed": "x", "fp16_backend": "apex", "max_steps": "2"}, OPTIONS, DEPRECATED_NAMES)
    assert str(caught.value).startswith("3 hyperparameters can't be used: learning_rat is not known")
    assert "seed 'x'" in str(caught.value)
    assert "fp16_backend" in str(caught.value)
