"""The server's settings, read from the environment with the table in variables.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.serve.configuration import variables
from berth.serve.configuration.variables import Variable
from berth.serve.hub import wants_hub
from berth.serve.limits import MEBIBYTE, PAYLOAD, REQUEST_TOKENS, RequestLimits
from berth.serve.questions.codecs import CODECS, split

SECONDS, BATCH_SECONDS = 55, 595  # SageMaker waits 60 s for an answer; a batch transform waits 600 s by default
TRANSFORM_MB = 6  # the default of a batch transform's MaxPayloadInMB
AT_ONCE_MB = 100  # SageMaker's limit for MaxPayloadInMB × MaxConcurrentTransforms
UNLIMITED = 1 << 50  # bytes


class SettingError(Exception):
    """Environment variables are invalid; the text has a sentence for each."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server's settings. The workers read theirs from the same environment."""

    port: int = variables.PORT.default
    model_dir: Path = variables.BASE_DIR.default / "model"
    payload: int = PAYLOAD  # bytes
    request_tokens: int = REQUEST_TOKENS
    failure_grace: int = variables.FAILURE_GRACE.default  # seconds
    workers: int = 0  # 0: one per GPU, or one without a GPU
    seconds: int = SECONDS  # time limit of a request
    batch: bool = False
    payload_mb: int | None = None  # SAGEMAKER_MAX_PAYLOAD_IN_MB
    multi_model: bool = False
    page: bool = True


def read_settings(environ: Mapping[str, str]) -> ServerSettings:
    """The settings in `environ`; SettingError names every invalid or misspelt variable."""
    problems = variables.misspelt_names(environ)
    values: dict[Variable, Any] = {}
    for variable in variables.VARIABLES:
        try:
            values[variable] = variable.read(environ)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise SettingError("; ".join(problems))
    batch, payload_mb = values[variables.BATCH], values[variables.PAYLOAD_MB]
    return ServerSettings(
        port=values[variables.PORT],
        model_dir=values[variables.BASE_DIR] / "model",
        payload={None: PAYLOAD, 0: UNLIMITED}.get(payload_mb) or payload_mb * MEBIBYTE,
        request_tokens=values[variables.MAX_REQUEST_TOKENS],
        failure_grace=values[variables.FAILURE_GRACE],
        workers=values[variables.WORKERS],
        seconds=values[variables.TIMEOUT] or (BATCH_SECONDS if batch else SECONDS),
        batch=batch,
        payload_mb=payload_mb,
        multi_model=values[variables.MULTI_MODEL],
        page=values[variables.PAGE] == "on",
    )


def check_for_questions(environ: Mapping[str, str]) -> None:
    """SettingError if `environ` asks for more than question answering. Called only once it is known that no handler of
    the model answers, because a handler may support other tasks and types.
    """
    problems = []
    task, accept = variables.TASK.read(environ), variables.ACCEPT.read(environ)
    if task != variables.TASK.default:
        problems.append(f"{variables.TASK.name} is `{task}`: this image answers questions ({variables.TASK.default})")
    if accept and split(accept)[0] not in CODECS:
        problems.append(f"{variables.ACCEPT.name} is `{accept}`: this image answers in {', '.join(CODECS)}")
    if problems:
        raise SettingError(f"{'; '.join(problems)}; for anything else add a code/inference.py to the model")


def idle_variables(server_settings: ServerSettings, environ: Mapping[str, str]) -> list[str]:
    """The variables that are set but have no effect on this server, with a handler or without."""
    hub_variables = (variables.MODEL_ID, variables.MODEL_REVISION)
    uses_hub = wants_hub(server_settings.model_dir, environ)

    def is_read(variable: Variable) -> bool:
        return (variable.many or not server_settings.multi_model) and (variable not in hub_variables or uses_hub)

    return sorted([*variables.unused_names(environ), *variables.without_effect(environ, is_read)])


def execution_parameters(settings: ServerSettings, workers: int, most: int) -> dict[str, int | str]:
    """The defaults for a batch transform: one body per worker at a time, many records per body, at most `most` bytes.

    SageMaker refuses a job with more than 100 MB at a time, and a job's own values replace these.
    """
    payload = min(TRANSFORM_MB if settings.payload_mb is None else settings.payload_mb, most // MEBIBYTE)
    at_once = max(1, AT_ONCE_MB // max(1, payload))
    return {
        "MaxConcurrentTransforms": min(workers, at_once),
        "BatchStrategy": "MULTI_RECORD",
        "MaxPayloadInMB": payload,
    }


def limits_of(settings: ServerSettings) -> RequestLimits:
    """The limits that the settings give."""
    return RequestLimits(
        tokens=settings.request_tokens, payload=settings.payload, batch=settings.batch, seconds=settings.seconds
    )
