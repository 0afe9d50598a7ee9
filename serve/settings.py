"""What the environment asks of the server, and what it takes before anything slow: its port and its open files."""

import errno
import resource
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.runtime.engines import choose
from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve import log
from berth.serve.codecs import CODECS
from berth.serve.hub import ID_VARIABLE, REVISION_VARIABLE, wants_hub
from berth.serve.limits import MEBIBYTE, PAYLOAD, PAYLOAD_VARIABLE, REQUEST_TOKENS, TOKENS_VARIABLE, RequestLimits
from berth.serve.user_code.find import S3, SUBMIT_VARIABLE, find_code, is_multi_model
from berth.serve.workers.pool import WorkerSettings

QUEUE = 2048  # connections that the kernel holds until they are accepted
SECONDS, BATCH_SECONDS = 55, 595  # SageMaker waits for an answer 60 s, and a batch transform for 600 by default
STRATEGIES = ("MULTI_RECORD", "SINGLE_RECORD")
TRANSFORM_MB = 6  # a batch transform's MaxPayloadInMB, unless it says another
AT_ONCE_MB = 100  # the most that it may be times MaxConcurrentTransforms
UNLIMITED = 1 << 50  # bytes
TASK = "question-answering"
LOG_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}

# What SageMaker, its SDKs and other servers' users set, and this server has no use for.
_IDLE = ("SAGEMAKER_SAFE_PORT_RANGE",)
_OTHER_SERVERS = ("MMS_", "TS_", "SAGEMAKER_TS_")


class SettingError(Exception):
    """An environment variable has a value that can't be used, or a port can't be had; one sentence."""


@dataclass(frozen=True, slots=True)
class TransformSettings:
    """What the environment says of a batch transform; 0 and "" for what it does not say."""

    concurrent: int = 0  # SAGEMAKER_MAX_CONCURRENT_TRANSFORMS
    strategy: str = ""  # SAGEMAKER_BATCH_STRATEGY
    payload_mb: int | None = None  # SAGEMAKER_MAX_PAYLOAD_IN_MB


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the environment says."""

    port: int = 8080  # SAGEMAKER_BIND_TO_PORT
    model_dir: Path = Path("/opt/ml/model")  # SAGEMAKER_BASE_DIR + "/model"
    payload: int = PAYLOAD  # bytes; SAGEMAKER_MAX_PAYLOAD_IN_MB
    request_tokens: int = REQUEST_TOKENS  # BERTH_MAX_REQUEST_TOKENS
    failure_grace: int = 10  # seconds; BERTH_FAILURE_GRACE
    workers: int = 0  # SAGEMAKER_MODEL_SERVER_WORKERS; 0: one for each GPU, or one
    seconds: int = SECONDS  # for a request; SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS or …_TIMEOUT
    batch: bool = False  # SAGEMAKER_BATCH
    transform: TransformSettings = TransformSettings()
    accept: str | None = None  # SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT
    log_level: int = 20  # logging's; SAGEMAKER_CONTAINER_LOG_LEVEL
    task: str = TASK  # HF_TASK
    multi_model: bool = False  # SAGEMAKER_MULTI_MODEL
    page: bool = True  # BERTH_PAGE


def read_settings(environ: Mapping[str, str]) -> ServerSettings:
    """The settings in `environ`; SettingError names the variable that can't be used."""

    def number(name: str, default: int, least: int, most: int) -> int:
        text = environ.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or not least <= int(text) <= most:
            raise SettingError(f"{name} is `{text}`: it must be a whole number from {least} to {most}")
        return int(text)

    def one_of(name: str, known: Collection[str]) -> str:
        text = environ.get(name, "").strip()
        if text and text not in known:
            raise SettingError(f"{name} is `{text}`: it must be one of {', '.join(known)}")
        return text

    one_of(log.FORMAT_VARIABLE, log.FORMATS)  # which was followed before anything could be said
    batch = environ.get("SAGEMAKER_BATCH", "").strip().lower() == "true"
    payload_mb = number(PAYLOAD_VARIABLE, -1, 0, 1024)
    # The first counted minutes in Multi Model Server; whoever sets it means seconds.
    seconds = number("SAGEMAKER_MODEL_SERVER_TIMEOUT", BATCH_SECONDS if batch else SECONDS, 1, 86_400)
    return ServerSettings(
        port=number("SAGEMAKER_BIND_TO_PORT", 8080, 1, 65535),
        model_dir=Path(environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml") / "model",
        payload={-1: PAYLOAD, 0: UNLIMITED}.get(payload_mb, payload_mb * MEBIBYTE),
        request_tokens=number(TOKENS_VARIABLE, REQUEST_TOKENS, 512, 100_000_000),
        failure_grace=number("BERTH_FAILURE_GRACE", 10, 0, 3600),
        workers=number("SAGEMAKER_MODEL_SERVER_WORKERS", 0, 1, 256),
        seconds=number("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", seconds, 1, 86_400),
        batch=batch,
        transform=TransformSettings(
            concurrent=number("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", 0, 1, 100),
            strategy=one_of("SAGEMAKER_BATCH_STRATEGY", STRATEGIES),
            payload_mb=None if payload_mb < 0 else payload_mb,
        ),
        accept=one_of("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", CODECS) or None,
        log_level=_log_level(environ.get("SAGEMAKER_CONTAINER_LOG_LEVEL", "").strip()),
        task=environ.get("HF_TASK", "").strip() or TASK,
        multi_model=is_multi_model(environ),
        page=one_of("BERTH_PAGE", ("on", "off")) != "off",
    )


def check_task(chosen: ServerSettings, environ: Mapping[str, str]) -> None:
    """Pass if the task is one that this image can do, or that the model's own code might; SettingError otherwise."""
    if chosen.task == TASK or chosen.multi_model or environ.get(SUBMIT_VARIABLE, "").startswith(S3):
        return
    try:
        code = find_code(chosen.model_dir, environ)
    except ModelFilesError as error:
        raise SettingError(str(error)) from error
    if code is None:
        raise SettingError(
            f"HF_TASK is `{chosen.task}`: this image answers questions ({TASK}); for another task give the model a "
            "code/inference.py of its own"
        )


def _log_level(text: str) -> int:
    """SageMaker's SDK sends logging's number, people write the name."""
    names = {str(number): number for number in LOG_LEVELS.values()} | LOG_LEVELS
    if text and text.lower() not in names:
        known = ", ".join(LOG_LEVELS)
        raise SettingError(f"SAGEMAKER_CONTAINER_LOG_LEVEL is `{text}`: it must be one of {known} or logging's number")
    return names.get(text.lower(), LOG_LEVELS["info"])


def idle_variables(chosen: ServerSettings, environ: Mapping[str, str]) -> list[str]:
    """Those of `environ` that are set and have no effect on this server, by name."""
    idle = set(_IDLE)
    if chosen.multi_model or not wants_hub(chosen.model_dir, environ):
        idle |= {ID_VARIABLE, REVISION_VARIABLE}
    return sorted(name for name in environ if environ[name] and (name in idle or name.startswith(_OTHER_SERVERS)))


def listen(port: int) -> socket.socket:
    """A listening socket on every IPv4 address; SettingError if the port can't be had."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # For its connections, which inherit it: without, an answer's body waits 40 ms for the client to acknowledge the
    # header. asyncio sets it only on sockets whose protocol is named.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.bind(("0.0.0.0", port))
        sock.listen(QUEUE)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            advice = "stop what listens there or set SAGEMAKER_BIND_TO_PORT"
            raise SettingError(f"port {port} is taken: {advice}") from error
        advice = "set SAGEMAKER_BIND_TO_PORT to another"
        raise SettingError(f"port {port} can't be used ({error.strerror}): {advice}") from error
    return sock


def raise_open_files() -> int:
    """Let this process have as many file descriptors as it may, for each connection is one; how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def worker_settings(chosen: ServerSettings, gpus: int, threads: int, visible: str | None) -> list[WorkerSettings]:
    """How each worker is started: one for each GPU, or as many as were asked for, which share what there is.

    `threads` are those of this host for models; `visible` is CUDA_VISIBLE_DEVICES, which says what GPU 0 is.
    """
    count = chosen.workers or max(1, gpus)
    share = max(1, threads // count)
    if not gpus:
        return [WorkerSettings(chosen.model_dir, share, "cpu")] * count
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return [
        WorkerSettings(chosen.model_dir, share, "cuda", {"CUDA_VISIBLE_DEVICES": names[number % gpus]})
        for number in range(count)
    ]


def model_worker(threads: int, folder: Path, scratch: Path) -> WorkerSettings:
    """How the one worker of a model among many is started: it keeps a graph of its own below `scratch`."""
    return WorkerSettings(folder, threads, "cpu", {choose.FOLDER_VARIABLE: str(scratch / "graph")})


def execution_parameters(chosen: ServerSettings, workers: int) -> dict[str, int | str]:
    """What a batch transform does where its job does not say: as many bodies at once as there are workers, many records
    in each. SageMaker refuses a job of more than 100 MB at once, and what the job itself says, the environment has.
    """
    said = chosen.transform
    payload = TRANSFORM_MB if said.payload_mb is None else said.payload_mb
    most = max(1, AT_ONCE_MB // max(1, payload))
    return {
        "MaxConcurrentTransforms": said.concurrent or min(workers, most),
        "BatchStrategy": said.strategy or STRATEGIES[0],
        "MaxPayloadInMB": payload,
    }


def request_limits(chosen: ServerSettings) -> RequestLimits:
    """The server's limits, with as many connections as this process may have open files."""
    return RequestLimits(
        tokens=chosen.request_tokens,
        payload=chosen.payload,
        batch=chosen.batch,
        open_files=raise_open_files(),
        seconds=chosen.seconds,
    )
