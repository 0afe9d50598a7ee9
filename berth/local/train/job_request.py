"""Reads the arguments of `run train`: hyperparameters, variables and the program.

Each function adds all problems that it finds to `problems`, and returns the valid part.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from berth.common.errors import Problems, refuse
from berth.contract import own_program
from berth.contract.hyperparameters import unquote
from berth.contract.own_program import find_program
from berth.local import opt_ml
from berth.local.train.api_limits import training_job_problems
from berth.local.train.job import TrainingJob, check_job

DEFAULT_PROGRAM = "train.py"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AT_ITS_PLACE = {"sagemaker_submit_directory": json.dumps("/opt/ml/code")}


def read_hyperparameters(words: Sequence[str], problems: Problems) -> dict[str, str]:
    """The hyperparameters of `-p name=value`."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            problems.add(f"--hyperparameter {word!r} is not a pair: write name=value.")
        elif name in pairs:
            problems.add(f"--hyperparameter {name} is given twice: pass it once.")
        else:
            pairs[name] = value
    return pairs


def read_variables(words: Sequence[str], problems: Problems) -> dict[str, str]:
    """Variables for the containers. One without a value gets this process's value, which so does not appear in `ps`."""
    variables: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not _VARIABLE.fullmatch(name):
            problems.add(
                f"-e {name!r} is not a valid name of a variable: use letters, digits and _, without a digit first."
            )
        elif name in variables:
            problems.add(f"-e {name} is given twice: pass it once.")
        elif not equals and name not in os.environ:
            problems.add(f"-e {name}: there is no variable of that name here: export it, or write NAME=value.")
        else:
            variables[name] = value if equals else os.environ[name]
    return variables


def complete_job(
    draft: TrainingJob,
    data: Path | None,
    entry_point: str | None,
    image_variables: Mapping[str, str],
    problems: Problems,
) -> TrainingJob:
    """The job with its program and channels; notes problems that can be found without an engine."""
    variables = with_image_program(draft.environment, image_variables)
    hyperparameters = choose_program(draft.code, entry_point, draft.hyperparameters, variables, problems)
    channels: dict[str, Path] = {}
    with problems.noted():
        channels |= {} if data is None else opt_ml.find_channels(data)
    job = replace(draft, channels=channels, hyperparameters=hyperparameters, environment=variables)
    if job.program is None:
        require_input(data, job.model, hyperparameters, problems)
    all_channels = [*channels, *([opt_ml.MODEL_CHANNEL] if job.model is not None else [])]
    with problems.noted():
        refuse(
            training_job_problems(draft.hyperparameters, draft.environment, all_channels, has_code=job.code is not None)
        )
    check_job(job, problems)
    return job


def with_image_program(variables: Mapping[str, str], image_variables: Mapping[str, str]) -> dict[str, str]:
    """The job's variables, plus the image's SAGEMAKER_PROGRAM unless the job sets it."""
    program = image_variables.get(own_program.VARIABLE, "")
    return ({own_program.VARIABLE: program} if program else {}) | dict(variables)


def choose_program(
    code: Path | None,
    entry_point: str | None,
    hyperparameters: Mapping[str, str],
    variables: Mapping[str, str],
    problems: Problems,
) -> dict[str, str]:
    """The hyperparameters, plus those that SageMaker's SDK sends for a source folder.

    variables: the job's, with SAGEMAKER_PROGRAM, which takes precedence over the hyperparameter.
    """
    if code is None:
        if entry_point is not None:
            problems.add(
                f"--entry-point {entry_point} needs --code, the program's folder. For a program in the image's "
                f"/opt/ml/code, pass `-e {own_program.VARIABLE}={entry_point}`."
            )
        return dict(hyperparameters)
    hyperparameter = unquote(hyperparameters.get(own_program.HYPERPARAMETER, "")).strip()
    if entry_point and hyperparameter not in ("", entry_point):
        problems.add(
            f"--entry-point {entry_point} and -p sagemaker_program={hyperparameter} name two programs: pass one."
        )
    name = entry_point or hyperparameter or variables.get(own_program.VARIABLE) or DEFAULT_PROGRAM
    complete = {own_program.HYPERPARAMETER: json.dumps(name), **_AT_ITS_PLACE}
    runs = find_program(complete, variables) or name
    if runs != name:
        problems.add(
            f"the program {name} would not run: {own_program.VARIABLE}={runs}, which the image or -e sets, takes "
            f"precedence, on SageMaker too; pass `-e {own_program.VARIABLE}={name}` to run it."
        )
    elif code.is_dir() and not (code / name).is_file():
        present = sorted(path.name for path in code.iterdir() if path.suffix in (".py", ".sh"))
        problems.add(
            f"{name} is not in {code}: give --entry-point the name of a program there."
            if entry_point is not None
            else f"there is no {name} in {code}: give --entry-point the name of your program"
            + (f", such as {present[0]}." if present else " there.")
        )
    return {**hyperparameters, **complete}


def require_input(
    data: Path | None, model: Path | None, hyperparameters: Mapping[str, str], problems: Problems
) -> None:
    """Notes a problem if a job of run_qa has no data, or no model to start from."""
    if data is None:
        problems.add("--data is missing: pass SQuAD data, or --code with a program of your own.", 2)
    elif model is None and "model_name_or_path" not in hyperparameters and not (data / "model").exists():
        problems.add(
            "there is no model to start from: pass --model FOLDER, or -p model_name_or_path=NAME if the hub can be "
            "reached."
        )
