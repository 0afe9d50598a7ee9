"""The arguments of `run train`, and the program that runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.common.errors import Problems, UserError
from berth.contract.own_program import find_program
from berth.local.train.job import TrainingJob
from berth.local.train.job_request import (
    choose_program,
    read_hyperparameters,
    read_variables,
    require_input,
    with_image_program,
)


def refused(problems: Problems) -> str:
    with pytest.raises(UserError) as refusal:
        problems.refuse()
    return str(refusal.value)


def test_variable_without_value_gets_the_shells_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a=b")
    monkeypatch.delenv("NOT_HERE", raising=False)
    problems = Problems()
    assert read_variables(["TOKEN", "A=1", "B="], problems) == {"TOKEN": "a=b", "A": "1", "B": ""}
    problems.refuse()
    read_variables(["NOT_HERE"], problems)
    assert refused(problems) == "-e NOT_HERE: there is no variable of that name here: export it, or write NAME=value."


@pytest.mark.parametrize("word", ["1X=2", "=2", "a b=2", "A-B=1", "A\nB=1", "1X"])
def test_read_variables_refuses_invalid_names(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("1X", "2")
    problems = Problems()
    read_variables([word], problems)
    assert "is not a valid name of a variable" in refused(problems)
    assert read_variables(["_x1=a=b", "HTTP=", "PATH"], Problems())["_x1"] == "a=b"


@pytest.mark.parametrize(
    ("image", "variables", "hyperparameters", "runs"),
    [
        ({}, {}, {}, None),
        ({"SAGEMAKER_PROGRAM": "train.py"}, {}, {}, "train.py"),
        ({"SAGEMAKER_PROGRAM": "train.py"}, {"SAGEMAKER_PROGRAM": "other.py"}, {}, "other.py"),
        ({}, {"SAGEMAKER_PROGRAM": "train.py"}, {}, "train.py"),
        ({}, {}, {"sagemaker_program": '"train.py"'}, "train.py"),
        ({"SAGEMAKER_PROGRAM": "train.py"}, {}, {"sagemaker_program": "other.py"}, "train.py"),
        ({"SAGEMAKER_PROGRAM": "train.py"}, {"SAGEMAKER_PROGRAM": ""}, {}, None),
    ],
)
def test_job_with_own_program_needs_neither_data_nor_model(
    image: dict[str, str], variables: dict[str, str], hyperparameters: dict[str, str], runs: str | None, tmp_path: Path
) -> None:
    variables = with_image_program(variables, image)
    problems = Problems()
    complete = choose_program(None, None, hyperparameters, variables, problems)
    problems.refuse()
    job = TrainingJob({}, tmp_path, hyperparameters=complete, environment=variables, model=tmp_path)
    assert job.program == runs == find_program(complete, variables)
    assert ("model_name_or_path" in job.all_hyperparameters) == (runs is None)
    if runs is None:
        require_input(None, None, complete, problems)
        require_input(tmp_path, None, complete, problems)
        assert "--data is missing" in refused(problems)
        assert "there is no model to start from" in refused(problems)


def test_program_of_a_source_folder_is_the_named_one(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    problems = Problems()
    for entry_point, program_hyperparameters, variables in (
        ("main.py", {}, {}),
        (None, {"sagemaker_program": "main.py"}, {}),
        (None, {}, {"SAGEMAKER_PROGRAM": "main.py"}),
        ("main.py", {}, {"SAGEMAKER_PROGRAM": "main.py"}),
    ):
        complete = choose_program(
            tmp_path, entry_point, {"epochs": "3", **program_hyperparameters}, variables, problems
        )
        assert complete == {
            "epochs": "3",
            "sagemaker_program": json.dumps("main.py"),
            "sagemaker_submit_directory": json.dumps("/opt/ml/code"),
        }
    problems.refuse()


@pytest.mark.parametrize(
    ("has_code", "entry_point", "hyperparameters", "variables", "fact"),
    [
        (True, None, {}, {}, "no train.py in {code}: give --entry-point the name of your program, such as main.py."),
        (True, "main.py", {}, {"SAGEMAKER_PROGRAM": "train.py"}, "main.py would not run: SAGEMAKER_PROGRAM=train.py"),
        (True, "main.py", {"sagemaker_program": "train.py"}, {}, "-p sagemaker_program=train.py"),
        (False, "train.py", {}, {}, "`-e SAGEMAKER_PROGRAM=train.py`"),
    ],
)
def test_missing_or_second_program_is_refused(
    has_code: bool, entry_point: str | None, hyperparameters: Any, variables: Any, fact: str, tmp_path: Path
) -> None:
    (tmp_path / "main.py").touch()
    problems = Problems()
    choose_program(tmp_path if has_code else None, entry_point, hyperparameters, variables, problems)
    assert fact.format(code=tmp_path) in refused(problems)


def test_duplicate_names_are_refused() -> None:
    problems = Problems()
    read_hyperparameters(["seed=1", "epochs", "seed=2"], problems)
    read_variables(["A=1", "A=2"], problems)
    message = refused(problems)
    assert "--hyperparameter seed is given twice" in message
    assert "-e A is given twice" in message
    assert "'epochs' is not a pair" in message
