"""What the environment asks of the server, and what it takes before anything slow: its port and its open files."""

import errno
import resource
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from berth.contract.launch_options import OF_TRAINING
from berth.contract.variables import PREFIX, misspelt, misspelt_ours
from berth.runtime.engines import choose
from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve import log
from berth.serve.codecs import CODECS
from berth.serve.hub import ID_VARIABLE, REVISION_VARIABLE, wants_hub
from berth.serve.limits import MEBIBYTE, PAYLOAD, PAYLOAD_VARIABLE, REQUEST_TOKENS, TOKENS_VARIABLE, RequestLimits
from berth.serve.user_code.find import (
    MULTI_VARIABLE,
    PROGRAM_VARIABLE,
    S3,
    SUBMIT_VARIABLE,
    UserCode,
    find_code,
    is_multi_model,
    is_true,
)
from berth.serve.workers.pool import WorkerSettings

QUEUE = 2048  # connections that the kernel holds until they are accepted
SECONDS, BATCH_SECONDS = 55, 595  # SageMaker waits for an answer 60 s, and a batch transform for 600 by default
STRATEGIES = ("MULTI_RECORD", "SINGLE_RECORD")
TRANSFORM_MB = 6  # a batch transform's MaxPayloadInMB, unless it says another
AT_ONCE_MB = 100  # the most that it may be times MaxConcurrentTransforms
UNLIMITED = 1 << 50  # bytes
TASK = "question-answering"

# What SageMaker, its SDKs and other servers' users set, and this server has no use for.
_IDLE = ("SAGEMAKER_SAFE_PORT_RANGE", "SAGEMAKER_USE_NGINX")
_OTHER_SERVERS = ("MMS_", "TS_", "SAGEMAKER_TS_")

# What says the same here, the first that is set: SageMaker's own, then Multi Model Server's and TorchServe's.
# SAGEMAKER_MODEL_SERVER_TIMEOUT counted minutes in Multi Model Server; whoever sets it means seconds.
_WORKERS = ("SAGEMAKER_MODEL_SERVER_WORKERS", "MMS_DEFAULT_WORKERS_PER_MODEL", "TS_DEFAULT_WORKERS_PER_MODEL")
_TIMEOUTS = (
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS",
    "SAGEMAKER_MODEL_SERVER_TIMEOUT",
    "MMS_DEFAULT_RESPONSE_TIMEOUT",
    "TS_DEFAULT_RESPONSE_TIMEOUT",
)

# What this server reads, here and elsewhere: another name that is nearly one of these was meant to be it.
_OURS = (
    "BERTH_FAILURE_GRACE",
    "BERTH_PAGE",
    choose.FOLDER_VARIABLE,
    choose.PRECISION_VARIABLE,
    log.FORMAT_VARIABLE,
    TOKENS_VARIABLE,
)
_SAGEMAKERS = (
    "SAGEMAKER_BASE_DIR",
    "SAGEMAKER_BATCH",
    "SAGEMAKER_BATCH_STRATEGY",
    "SAGEMAKER_BIND_TO_PORT",
    log.LEVEL_VARIABLE,
    "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS",
    "SAGEMAKER_REGION",
    *(name for name in (*_WORKERS, *_TIMEOUTS) if name.startswith("SAGEMAKER_")),
    MULTI_VARIABLE,
    PAYLOAD_VARIABLE,
    PROGRAM_VARIABLE,
    SUBMIT_VARIABLE,
)
_LIKENESS = 0.9  # of theirs, which begin alike: SAGEMAKER_MODEL_DIR is no SAGEMAKER_BASE_DIR


class SettingError(Exception):
    """Environment variables can't be used, with a sentence for each, or a port can't be had."""


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
    workers: int = 0  # _WORKERS; 0: one for each GPU, or one
    seconds: int = SECONDS  # for a request; _TIMEOUTS
    batch: bool = False  # SAGEMAKER_BATCH
    transform: TransformSettings = TransformSettings()
    accept: str | None = None  # SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT
    task: str = TASK  # HF_TASK
    multi_model: bool = False  # SAGEMAKER_MULTI_MODEL
    page: bool = True  # BERTH_PAGE


class _Reader:
    """Reads variables one by one, and collects what can't be used, so that all of it is told at once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.problems = misspelt_ours((name for name in environ if name not in OF_TRAINING), _OURS)

    def text(self, name: str) -> str:
        return self.environ.get(name, "").strip()

    def wrong(self, name: str, needed: str) -> None:
        self.problems.append(f"{name} is `{self.text(name)}`: it must be {needed}")

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self.text(name)
        if text and not (text.isdecimal() and least <= int(text) <= most):
            self.wrong(name, f"a whole number from {least} to {most}")
            return default
        return int(text) if text else default

    def first_number(self, names: Sequence[str], default: int, least: int, most: int) -> int:
        """Of these variables the first that is set; what can't be used is told of each."""
        for name in reversed(names):
            default = self.number(name, default, least, most)
        return default

    def one_of(self, name: str, known: Collection[str]) -> str:
        text = self.text(name)
        if text and text not in known:
            self.wrong(name, f"one of {', '.join(known)}")
            return ""
        return text

    def log_level(self) -> None:
        if self.text(log.LEVEL_VARIABLE) and log.level_of(self.text(log.LEVEL_VARIABLE)) is None:
            self.wrong(log.LEVEL_VARIABLE, f"one of {', '.join(log.LEVELS)} or logging's number")

    def check(self, read: Callable[[], Any]) -> Any:
        """What `read` gives; None, and its sentence collected, where it can't."""
        try:
            return read()
        except ModelFilesError as error:
            self.problems.append(str(error))
            return None


def read_settings(environ: Mapping[str, str]) -> ServerSettings:
    """The settings in `environ`; SettingError names every variable that can't be used, or that is misspelt."""
    reader = _Reader(environ)
    number, one_of = reader.number, reader.one_of
    one_of(log.FORMAT_VARIABLE, log.FORMATS)  # which was followed before anything could be said
    reader.log_level()  # and so was this
    reader.check(lambda: choose.settings(environ, 1, cuda=False))  # which the workers follow
    batch = bool(reader.check(lambda: is_true("SAGEMAKER_BATCH", environ)))
    payload_mb = number(PAYLOAD_VARIABLE, -1, 0, 1024)
    chosen = ServerSettings(
        port=number("SAGEMAKER_BIND_TO_PORT", 8080, 1, 65535),
        model_dir=Path(environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml") / "model",
        payload={-1: PAYLOAD, 0: UNLIMITED}.get(payload_mb, payload_mb * MEBIBYTE),
        request_tokens=number(TOKENS_VARIABLE, REQUEST_TOKENS, 512, 100_000_000),
        failure_grace=number("BERTH_FAILURE_GRACE", 10, 0, 3600),
        workers=reader.first_number(_WORKERS, 0, 1, 256),
        seconds=reader.first_number(_TIMEOUTS, BATCH_SECONDS if batch else SECONDS, 1, 86_400),
        batch=batch,
        transform=TransformSettings(
            concurrent=number("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", 0, 1, 100),
            strategy=one_of("SAGEMAKER_BATCH_STRATEGY", STRATEGIES),
            payload_mb=None if payload_mb < 0 else payload_mb,
        ),
        accept=one_of("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", CODECS) or None,
        task=reader.text("HF_TASK") or TASK,
        multi_model=bool(reader.check(lambda: is_multi_model(environ))),
        page=one_of("BERTH_PAGE", ("on", "off")) != "off",
    )
    if reader.check(lambda: _can_do_task(chosen, environ)) is False:
        reader.problems.append(
            f"HF_TASK is `{chosen.task}`: this image answers questions ({TASK}); for another task give the model a "
            "code/inference.py of its own"
        )
    if reader.problems:
        raise SettingError("; ".join(dict.fromkeys(reader.problems)))
    return chosen


def _can_do_task(chosen: ServerSettings, environ: Mapping[str, str]) -> bool:
    """Whether the task is one that this image can do, or that the model's own code might; ModelFilesError for code that
    can't be found.
    """
    if chosen.task == TASK or chosen.multi_model or environ.get(SUBMIT_VARIABLE, "").startswith(S3):
        return True
    return isinstance(find_code(chosen.model_dir, environ), UserCode)


def idle_variables(chosen: ServerSettings, environ: Mapping[str, str]) -> list[str]:
    """Those of `environ` that are set and have no effect on this server, by name, some with what to do about it."""
    told = [name for name in environ if environ[name]]
    idle = set(_IDLE)
    if chosen.multi_model or not wants_hub(chosen.model_dir, environ):
        idle |= {ID_VARIABLE, REVISION_VARIABLE}
    honoured = (*_WORKERS, *_TIMEOUTS)
    others = [name for name in told if name.startswith(_OTHER_SERVERS) and name not in honoured]
    found = {name: name for name in told if name in idle or name in others}
    found |= {name: name for name in told if name.startswith(PREFIX) and name not in (*_OURS, *OF_TRAINING)}
    sagemakers = [name for name in told if name.startswith("SAGEMAKER_") and name not in found]
    near = misspelt(sagemakers, _SAGEMAKERS, _LIKENESS)
    found |= {name: f"{name} (did you mean {meant}?)" for name, meant in near.items()}
    most = limits_of(chosen).body_of_tokens
    if chosen.transform.payload_mb and chosen.payload > most:
        advice = f"a body may have {most} bytes, by its tokens: raise {TOKENS_VARIABLE}"
        found[PAYLOAD_VARIABLE] = f"{PAYLOAD_VARIABLE} ({advice})"
    return [found[name] for name in sorted(found)]


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
    in each, and no more than their tokens allow. SageMaker refuses a job of more than 100 MB at once, and what the job
    itself says, the environment has.
    """
    said = chosen.transform
    allowed = replace(limits_of(chosen), batch=True).body_of_tokens // MEBIBYTE
    payload = min(TRANSFORM_MB if said.payload_mb is None else said.payload_mb, allowed)
    most = max(1, AT_ONCE_MB // max(1, payload))
    return {
        "MaxConcurrentTransforms": said.concurrent or min(workers, most),
        "BatchStrategy": said.strategy or STRATEGIES[0],
        "MaxPayloadInMB": payload,
    }


def request_limits(chosen: ServerSettings) -> RequestLimits:
    """The server's limits, with as many connections as this process may have open files."""
    return replace(limits_of(chosen), open_files=raise_open_files())


def limits_of(chosen: ServerSettings) -> RequestLimits:
    """The limits that were chosen."""
    return RequestLimits(
        tokens=chosen.request_tokens, payload=chosen.payload, batch=chosen.batch, seconds=chosen.seconds
    )
