"""What the environment asks of the server: the settings of a start, read by the table in variables.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.serve import variables
from berth.serve.codecs import CODECS, split
from berth.serve.hub import wants_hub
from berth.serve.limits import MEBIBYTE, PAYLOAD, PAYLOAD_VARIABLE, REQUEST_TOKENS, TOKENS_VARIABLE, RequestLimits
from berth.serve.variables import Variable

SECONDS, BATCH_SECONDS = 55, 595  # SageMaker waits for an answer 60 s, and a batch transform for 600 by default
TRANSFORM_MB = 6  # a batch transform's MaxPayloadInMB, unless it says another
AT_ONCE_MB = 100  # the most that it may be times MaxConcurrentTransforms
UNLIMITED = 1 << 50  # bytes


class SettingError(Exception):
    """Environment variables can't be used, with a sentence for each."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the environment says to the server; its workers read the same environment."""

    port: int = variables.PORT.default
    model_dir: Path = variables.BASE_DIR.default / "model"
    payload: int = PAYLOAD  # bytes
    request_tokens: int = REQUEST_TOKENS
    failure_grace: int = variables.FAILURE_GRACE.default  # seconds
    workers: int = 0  # 0: one for each GPU, or one
    seconds: int = SECONDS  # for a request
    batch: bool = False
    concurrent: int = 0  # SAGEMAKER_MAX_CONCURRENT_TRANSFORMS; 0 if it is not set
    strategy: str = ""  # SAGEMAKER_BATCH_STRATEGY
    payload_mb: int | None = None  # SAGEMAKER_MAX_PAYLOAD_IN_MB
    accept: str | None = None
    multi_model: bool = False
    page: bool = True


def read_settings(environ: Mapping[str, str]) -> ServerSettings:
    """The settings in `environ`; SettingError names every variable that can't be used, or that is misspelt."""
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
        concurrent=values[variables.CONCURRENT],
        strategy=values[variables.BATCH_STRATEGY],
        payload_mb=payload_mb,
        accept=values[variables.ACCEPT],
        multi_model=values[variables.MULTI_MODEL],
        page=values[variables.PAGE] == "on",
    )


def check_for_questions(environ: Mapping[str, str]) -> None:
    """Pass if our own model can answer as `environ` asks; SettingError otherwise. A model's own code might do more, and
    who answers is known only when its code has been looked for.
    """
    problems = []
    task, accept = variables.TASK.read(environ), variables.ACCEPT.read(environ)
    if task != variables.TASK.default:
        problems.append(f"{variables.TASK.name} is `{task}`: this image answers questions ({variables.TASK.default})")
    if accept and split(accept)[0] not in CODECS:
        problems.append(f"{variables.ACCEPT.name} is `{accept}`: this image answers in {', '.join(CODECS)}")
    if problems:
        raise SettingError(f"{'; '.join(problems)}; for anything else give the model a code/inference.py of its own")


def idle_variables(chosen: ServerSettings, environ: Mapping[str, str]) -> list[str]:
    """Those of `environ` that are set and have no effect on this server, whoever answers, some with the reason."""
    of_hub = (variables.MODEL_ID, variables.MODEL_REVISION)
    hub = wants_hub(chosen.model_dir, environ)

    def is_read(variable: Variable) -> bool:
        return (variable.many or not chosen.multi_model) and (variable not in of_hub or hub)

    without_effect, overruled = variables.without_effect(environ, is_read), variables.overruled(environ, is_read)
    return sorted([*variables.unused_names(environ), *without_effect, *overruled])


def idle_with_questions(limits: RequestLimits, environ: Mapping[str, str]) -> list[str]:
    """Those that have no effect where our own model answers."""
    if limits.payload <= limits.body_of_tokens or not variables.PAYLOAD_MB.read(environ):
        return []
    advice = f"a body may have {limits.body_of_tokens} bytes, by its tokens: raise {TOKENS_VARIABLE}"
    return [f"{PAYLOAD_VARIABLE} ({advice})"]


def idle_with_handler(environ: Mapping[str, str]) -> list[str]:
    """Those that have no effect where a model's own code answers and does not use our model."""
    many = variables.MULTI_MODEL.read(environ)
    return sorted(variables.without_effect(environ, lambda each: not each.of_our_model or (many and not each.many)))


def execution_parameters(chosen: ServerSettings, workers: int, most: int) -> dict[str, int | str]:
    """What a batch transform does if its job does not say: as many bodies at once as there are workers, many records in
    each, and no more than the `most` bytes that who answers takes. SageMaker refuses a job of more than 100 MB at once,
    and what the job itself says, the environment has.
    """
    payload = min(TRANSFORM_MB if chosen.payload_mb is None else chosen.payload_mb, most // MEBIBYTE)
    at_once = max(1, AT_ONCE_MB // max(1, payload))
    return {
        "MaxConcurrentTransforms": chosen.concurrent or min(workers, at_once),
        "BatchStrategy": chosen.strategy or "MULTI_RECORD",
        "MaxPayloadInMB": payload,
    }


def limits_of(chosen: ServerSettings) -> RequestLimits:
    """The limits that were chosen."""
    return RequestLimits(
        tokens=chosen.request_tokens, payload=chosen.payload, batch=chosen.batch, seconds=chosen.seconds
    )
