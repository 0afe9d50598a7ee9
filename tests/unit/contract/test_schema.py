"""Options from an image's schema parse and reject values on the user's machine like the image does."""

import dataclasses
import json
import subprocess
import sys

import pytest
from transformers import TrainingArguments

from berth.contract.deprecated import DEPRECATED_NAMES
from berth.contract.hyperparameters import HyperparameterError, decode, parse
from berth.contract.schema import SchemaError, read_schema, write_schema
from berth.train.run_qa.recipe import Recipe, options
from berth.train.run_qa.schema import MEANINGS, described
from tests.unit.contract.test_hyperparameters import CASES, MISTAKES, OLD

IMAGE = described()
HOST = read_schema(write_schema(IMAGE))


def plain(value: object) -> object:
    """The passed fields of a settings object; the image's class adds its defaults."""
    return {"tp_size": value.tp_size} if dataclasses.is_dataclass(value) else value  # type: ignore[attr-defined]


def test_schema_has_meanings_and_defaults() -> None:
    assert [name for name, option in HOST.items() if not option.meaning] == []
    assert {spec.name for spec in dataclasses.fields(Recipe)} <= set(MEANINGS)
    defaults = {name: option.default for name, option in HOST.items()}
    assert list(defaults) == list(options(TrainingArguments))
    assert {name: defaults[name] for name in ("learning_rate", "seed", "max_seq_length", "token", "optim")} == {
        "learning_rate": "5e-05",
        "seed": "42",
        "max_seq_length": "384",
        "token": "",
        "optim": TrainingArguments().optim.value,
    }
    # The defaults of transformers are steps, 500 and random.
    assert [defaults[name] for name in ("save_strategy", "logging_steps", "train_sampling_strategy")] == [
        "epoch",
        "0.02",
        "group_by_length",
    ]


def test_schema_decodes_like_image() -> None:
    wrong = []
    for case in CASES:
        option, value, encode = case.values
        name, raw = option.name, encode(value)  # type: ignore[union-attr,operator]
        host = plain(decode(raw, HOST[name].type, HOST[name].choices))
        image = plain(decode(raw, IMAGE[name].type, IMAGE[name].choices))
        if host != image or type(host) is not type(image):
            wrong.append((case.id, host, image))
    assert wrong == []


@pytest.mark.parametrize("name", OLD)
def test_schema_replaces_deprecated_names_like_image(name: str) -> None:
    raw = {name: json.dumps(OLD[name][0])}
    host, image = parse(raw, HOST, DEPRECATED_NAMES), parse(raw, IMAGE, DEPRECATED_NAMES)
    assert (host.values, host.notes) == (image.values, image.notes)


@pytest.mark.parametrize("hyperparameters", [hyperparameters for hyperparameters, _ in MISTAKES])
def test_schema_reports_problems_like_image(hyperparameters: dict[str, str]) -> None:
    with pytest.raises(HyperparameterError) as host:
        parse(hyperparameters, HOST, DEPRECATED_NAMES)
    with pytest.raises(HyperparameterError) as image:
        parse(hyperparameters, IMAGE, DEPRECATED_NAMES)
    assert str(host.value) == str(image.value)


@pytest.mark.slow
def test_schema_module_prints_only_schema() -> None:
    command = [sys.executable, "-P", "-m", "berth.train.run_qa.schema"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output == write_schema(IMAGE) + "\n"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"version": 2, "options": []}', '{"version": 1, "options": [{"name": "a", "kinds": ["set"]}]}'],
)
def test_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        read_schema(text)
