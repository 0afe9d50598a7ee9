"""`build.py hyperparameters`: names, types, defaults and meanings."""

import json
from types import ModuleType
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.contract.schema import read_schema, write_schema
from berth.images.local_image import LocalImage
from berth.local import commands
from berth.local.train import checks
from berth.local.train.hyperparameter_list import find, type_text, with_launcher_options
from berth.train.run_qa.schema import described

# As this machine, which has no transformers, reads them from an image.
OPTIONS = read_schema(write_schema(described()))
IMAGE = LocalImage("berth-train:cpu", "sha256:aa", "train", "cpu", derived=False, attrs={"Config": {}})


def test_every_hyperparameter_has_type_and_meaning() -> None:
    rows = with_launcher_options(OPTIONS)
    assert {row.name for row in rows} == {*OPTIONS, "processes_per_host"}
    assert [row.name for row in rows] == sorted(row.name for row in rows)
    assert [row.name for row in rows if not row.meaning or not type_text(row)] == []


@pytest.mark.parametrize(
    ("name", "current_name", "default", "type"),
    [
        ("learning_rate", "learning_rate", "5e-05", "number"),
        ("learning-rate", "learning_rate", "5e-05", "number"),
        ("epochs", "num_train_epochs", "3.0", "number"),
        ("evaluation_strategy", "eval_strategy", "no", "one of no, steps, epoch"),
        ("do_train", "do_train", "true", "true or false"),
        ("processes_per_host", "processes_per_host", "", "whole number"),
        ("fp16_opt_level", "fp16_opt_level", "", "text"),
    ],
)
def test_find_accepts_current_and_deprecated_names(name: str, current_name: str, default: str, type: str) -> None:
    found = find(name, OPTIONS)
    assert (found.name, found.default, type_text(found)) == (current_name, default, type)
    assert (f"{name} is its deprecated name" in found.meaning) == (name in ("epochs", "evaluation_strategy"))


def test_error_for_unknown_hyperparameter_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no hyperparameter lr: did you mean learning_rate\?"):
        find("lr", OPTIONS)
    with pytest.raises(UserError, match=r"no hyperparameter xyzzy\. "):
        find("xyzzy", OPTIONS)


def test_hyperparameters_command_prints_table_details_and_json(
    command_line: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "connect", MagicMock())
    monkeypatch.setattr(commands, "select_image", MagicMock(return_value=IMAGE))
    monkeypatch.setattr(checks, "known_hyperparameters", lambda client, image: OPTIONS)
    assert command_line.main(["hyperparameters"]) == 0
    assert ["seed", "42"] in [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert command_line.main(["hyperparameters", "seed"]) == 0
    assert capsys.readouterr().out.startswith("seed: whole number; default: 42\n")
    assert command_line.main(["hyperparameters", "seed", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["hyperparameters"]
    assert (row["name"], row["default"]) == ("seed", "42")
