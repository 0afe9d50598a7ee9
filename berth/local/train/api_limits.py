"""Checks a job or a model against the limits of SageMaker's API: counts, lengths and patterns.

The limits are read from botocore's model of CreateTrainingJob and CreateModel.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

_SHOWN_CHARACTERS = 40
_SDK_HYPERPARAMETERS = (
    "sagemaker_program",
    "sagemaker_submit_directory",
    "sagemaker_container_log_level",
    "sagemaker_job_name",
    "sagemaker_region",
)
"""Hyperparameters that SDK v2 sends with every source folder (tests/unit/train/requests.json)."""


def training_job_problems(
    hyperparameters: Mapping[str, str], environment: Mapping[str, str], channels: Collection[str], *, has_code: bool
) -> list[str]:
    """Why CreateTrainingJob would reject the job, a sentence each.

    hyperparameters, environment: the user's own; channels: all of the job; has_code: whether the SDK uploads a source
    folder, for which it sends more hyperparameters.
    """
    request = _request("CreateTrainingJob")
    sdk = [name for name in _SDK_HYPERPARAMETERS if has_code and name not in hyperparameters]
    things = "hyperparameters" + (f" ({len(sdk)} of them the SDK's own for a source folder)" if sdk else "")
    elsewhere = "put the settings into a file, in a channel or in your source folder"
    shape = request["HyperParameters"]
    problems = _count(things, len(hyperparameters) + len(sdk), shape, elsewhere)
    problems += _entries("hyperparameter", hyperparameters, shape, elsewhere)
    problems += _variables(environment, request["Environment"], elsewhere)
    if channels:
        shape = request["InputDataConfig"]
        problems += _count("channels", len(channels), shape, "put some of them together")
        for name in sorted(channels):
            problems += _text(f"the name of the channel {_short(name)}", name, shape.member.members["ChannelName"], "")
    return problems


def model_problems(environment: Mapping[str, str]) -> list[str]:
    """Why CreateModel would reject a model with these variables, a sentence each."""
    if not environment:
        return []
    shape = _request("CreateModel")["PrimaryContainer"].members["Environment"]
    return _variables(environment, shape, "put it into a file of the model")


@cache
def _request(operation: str) -> Mapping[str, Any]:
    # Imported here because it takes half a second, and only these commands need it.
    from botocore.loaders import create_loader
    from botocore.model import ServiceModel

    service = ServiceModel(create_loader().load_service_model("sagemaker", "service-2"))
    members: Mapping[str, Any] = service.operation_model(operation).input_shape.members
    return members


def _variables(environment: Mapping[str, str], shape: Any, elsewhere: str) -> list[str]:
    return [
        *_count("environment variables", len(environment), shape, elsewhere),
        *_entries("variable", environment, shape, elsewhere),
    ]


def _entries(kind: str, entries: Mapping[str, str], shape: Any, elsewhere: str) -> Iterator[str]:
    for name, value in entries.items():
        yield from _text(f"the name of the {kind} {_short(name)}", name, shape.key, "")
        yield from _text(f"the {kind} {_short(name)}", value, shape.value, elsewhere)


def _count(things: str, number: int, shape: Any, advice: str) -> list[str]:
    most = shape.metadata["max"]
    return [f"there are {number} {things}, and SageMaker takes {most}: {advice}."] if number > most else []


def _text(what: str, text: str, shape: Any, elsewhere: str) -> Iterator[str]:
    """Problems of a text; the text itself is not shown, because it may be a secret."""
    most, pattern = shape.metadata["max"], shape.metadata["pattern"]
    if len(text) > most:
        advice = elsewhere or "choose a shorter one"
        yield f"{what} has {len(text):,} characters, and SageMaker takes {most:,}: {advice}."
    elif not re.fullmatch(pattern, text):
        if "\n" in text:
            yield f'{what} has a line break, which SageMaker does not accept: write it as JSON, such as "one\\ntwo".'
        else:
            yield f"{what} has a character that SageMaker does not accept: its pattern is {pattern}."


def _short(name: str) -> str:
    return name if len(name) <= _SHOWN_CHARACTERS else f"{name[:_SHOWN_CHARACTERS]}…"
