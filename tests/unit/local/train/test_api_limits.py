"""Requests that SageMaker's API would refuse are refused before a container starts. The numbers are AWS's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from berth.common.errors import Problems, UserError
from berth.local.train.api_limits import model_problems, training_job_problems
from berth.local.train.job import TrainingJob
from berth.local.train.job_request import complete_job

AT_THE_LIMIT = {f"{'h' * 250}{number:06}": "v" * 2500 for number in range(100)}


def job_problems(
    hyperparameters: Mapping[str, str] = {},
    environment: Mapping[str, str] = {},
    channels: Sequence[str] = (),
    *,
    has_code: bool = False,
) -> list[str]:
    return training_job_problems(hyperparameters, environment, channels, has_code=has_code)


def test_requests_at_the_limits_are_accepted() -> None:
    variables = {f"V{'x' * 508}{number:03}": "v" * 512 for number in range(100)}
    assert job_problems(AT_THE_LIMIT, variables, [f"{'c' * 62}{number:02}" for number in range(20)]) == []
    assert model_problems({f"V{'x' * 1020}{number:03}": "v" * 1024 for number in range(100)}) == []
    assert job_problems({"text": ""}, {"EMPTY": "", "LINES": "a\nb"}) == []


@pytest.mark.parametrize(
    ("problems", "facts"),
    [
        (job_problems({"notes": "v" * 2501}), ["hyperparameter notes", "2,501", "2,500"]),
        (job_problems({"n" * 257: "1"}), ["name of the hyperparameter nnn", "257", "256"]),
        (job_problems({**AT_THE_LIMIT, "one": "more"}), ["101 hyperparameters", "100"]),
        (job_problems({"text": "two\nlines"}), ["hyperparameter text", "line break"]),
        (job_problems({}, {"TOKEN": "v" * 513}), ["variable TOKEN", "513", "512"]),
        (job_problems({}, {"V" * 513: "v"}), ["name of the variable VVV", "513", "512"]),
        (job_problems({}, {f"V{number}": "v" for number in range(101)}), ["101 environment variables", "100"]),
        (job_problems(channels=[f"c{number}" for number in range(21)]), ["21 channels", "20"]),
        (job_problems(channels=["c" * 65]), ["channel ccc", "65", "64"]),
        (job_problems(channels=["my channel"]), ["channel my channel", "A-Za-z0-9"]),
        (model_problems({"PROMPT": "v" * 1025}), ["variable PROMPT", "1,025", "1,024"]),
        (model_problems({f"V{number}": "v" for number in range(101)}), ["101 environment variables", "100"]),
    ],
)
def test_error_names_size_and_limit(problems: list[str], facts: list[str]) -> None:
    (sentence,) = problems
    assert [fact for fact in facts if fact not in sentence] == []
    assert "vvv" not in sentence, "a value may be a secret"


def test_hyperparameters_of_the_sdk_are_counted_with_a_source_folder() -> None:
    mine = {f"h{number}": "1" for number in range(95)}
    assert job_problems(mine, has_code=True) == []
    (sentence,) = job_problems({**mine, "one": "more"}, has_code=True)
    assert "101 hyperparameters" in sentence
    assert "5 of them" in sentence
    assert job_problems({**mine, "sagemaker_program": "train.py"}, has_code=True) == []


def test_model_channel_is_counted(tmp_path: Path) -> None:
    for name in ("train", *map(str, range(19))):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "rows.csv").touch()
    job = TrainingJob({}, tmp_path / "out", environment={"SAGEMAKER_PROGRAM": "train.py"})
    problems = Problems()
    complete_job(job, tmp_path / "data", None, {}, problems)
    problems.refuse()
    complete_job(
        TrainingJob({}, tmp_path / "out", environment={"SAGEMAKER_PROGRAM": "train.py"}, model=tmp_path),
        tmp_path / "data",
        None,
        {},
        problems,
    )
    with pytest.raises(UserError, match="21 channels"):
        problems.refuse()
