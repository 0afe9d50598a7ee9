"""Launch options of a job, from the SDK's `distribution=`, the BERTH_* variables and `processes_per_host`.

Framework estimators send `distribution=` as `sagemaker_*` hyperparameters. A generic Estimator sends nothing; with it,
BERTH_DISTRIBUTION and BERTH_PROCESSES_PER_HOST do the same.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from berth.contract.errors import JobError
from berth.contract.hyperparameters import UNSET, decode, unquote
from berth.contract.variables import misspelt_ours

MOST_PROCESSES = 256
REQUIRE_EFA = "BERTH_REQUIRE_EFA"
LOG_LEVEL = "BERTH_LOG_LEVEL"
_LOG_LEVELS = ("info", "debug")
TIMEOUT_VARIABLE = "BERTH_RENDEZVOUS_TIMEOUT"
PEER_TIMEOUT = "BERTH_PEER_TIMEOUT"
LEAST_PEER_TIMEOUT = 4.0
"""Seconds. Hosts send a heartbeat every second, and the time-out must be more than two intervals long."""
TRACE = "BERTH_TRACE"
MOST_TRACED = 100
SMDISTRIBUTED = "BERTH_SMDISTRIBUTED"
_SMDISTRIBUTED = ("open", "aws", "off")
MP_PARAMETERS = "mp_parameters"
_VARIABLES = (
    "BERTH_DISTRIBUTION",
    "BERTH_PROCESSES_PER_HOST",
    TIMEOUT_VARIABLE,
    PEER_TIMEOUT,
    REQUIRE_EFA,
    LOG_LEVEL,
    TRACE,
    SMDISTRIBUTED,
)
_SET_FOR_PROGRAMS = ("BERTH_BACKEND", "BERTH_FAILURE_FILE", "BERTH_RANK_EVENTS")
TRAINING_VARIABLES = (*_VARIABLES, *_SET_FOR_PROGRAMS)
"""The BERTH_* variables of the training image: those that a job may set, and those that the image sets for programs."""
_DISTRIBUTIONS = ("none", "mpi", "smddp")
_REFUSED = {
    "sagemaker_parameter_server_enabled": (
        "asks for a parameter server, which PyTorch does not use; remove parameter_server from distribution, or use "
        "mpi instead."
    ),
    "sagemaker_multi_worker_mirrored_strategy_enabled": (
        "is for TensorFlow; remove it from distribution, or use mpi instead."
    ),
    "sagemaker_pytorch_xla_multi_worker_enabled": (
        "asks for XLA, which this image does not have; remove it from distribution, or use mpi instead."
    ),
}
# These jobs are launched by mpirun too, with the variables that torchrun would set.
_TORCH_LAUNCHERS = ("sagemaker_torch_distributed_enabled", "sagemaker_pytorch_ddp_enabled")
_EXPORTS_PARAMETER = "mca_base_env_list"
_SET_BY_PLAN = {
    "-np",
    "-n",
    "-c",
    "--np",
    "--n",
    "-host",
    "--host",
    "-H",
    "-hostfile",
    "--hostfile",
    "-machinefile",
    "--machinefile",
}


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The checked options. None or empty means that the job does not set them.

    mpi: mpirun starts ranks. mpi4py: it runs them through mpi4py, whose runner ends all ranks when one raises.
    smddp: use SageMaker's data parallel library.
    efa: fail if NCCL would fall back to TCP. debug: log the launch plan's command lines and settings.
    timeout: seconds that hosts wait for each other. peer_timeout: seconds of silence after which a host counts as lost.
    trace: the steps of run_qa whose time is broken down.
    model_parallel: the options of SageMaker's model parallel library, unchecked.
    smdistributed: whose libraries to import: open, aws or off; empty: AWS's if installed, else berth's.
    processes: ranks per host, set by `processes_source`. exports: variables of mpirun's `-x NAME=value`, for all hosts.
    reasons: why the ranks are started in this way, for the log. problems: sentences; any of them stops the job.
    """

    mpi: bool = False
    mpi4py: bool = False
    smddp: bool = False
    efa: bool = False
    debug: bool = False
    timeout: float | None = None
    peer_timeout: float | None = None
    trace: range = range(0)
    model_parallel: Mapping[str, Any] = field(default_factory=dict)
    smdistributed: str = ""
    processes: int | None = None
    processes_source: str = ""
    mpi_options: tuple[str, ...] = ()
    exports: Mapping[str, str] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_launch_options(
    hyperparameters: Mapping[str, str], program: str | None, environ: Mapping[str, str]
) -> LaunchOptions:
    """Read the launch options; never raises, because `problems` collects all errors. program: the user's, if any."""
    values = {name: unquote(text).strip() for name, text in hyperparameters.items()}
    problems = [
        f"{name} {sentence}"
        for name, sentence in _REFUSED.items()
        if values.get(name, "").lower() not in ("", "false", "0", "{}", "null", "none")
    ]
    model_parallel = _model_parallel(program, values, problems)
    options = _distribution(program, values, environ, problems)
    if model_parallel and program and not options.mpi and not environ.get("BERTH_DISTRIBUTION", "").strip():
        reason = "mpirun: distribution smdistributed modelparallel was asked for"
        options = replace(options, mpi=True, mpi4py=True, reasons=(*options.reasons, reason))
    options = _variables(options, environ, problems)
    processes, source = _processes(program, values, environ, problems)
    mpi_options, exports = _mpi_options(values, problems)
    problems += [
        f"{name} is set by the image, for your program to read; remove it from the job."
        for name in _SET_FOR_PROGRAMS
        if name in environ or name in exports
    ]
    return replace(
        options,
        model_parallel=model_parallel,
        processes=processes,
        processes_source=source,
        mpi_options=mpi_options,
        exports=exports,
        problems=tuple(problems),
    )


def read_mp_parameters(text: str) -> dict[str, Any]:
    """The options of the model parallel library in the text of `mp_parameters`: unchecked, empty if it sets none.

    Raises ValueError, with the end of a sentence, unless the text is a JSON object.
    """
    text = unquote(text).strip()
    if text.lower() in ("", "false", "0", "none", "null"):
        return {}
    value: dict[str, Any] = decode(text, dict[str, Any])
    return {} if value is UNSET else value


def _model_parallel(program: str | None, values: Mapping[str, str], problems: list[str]) -> Mapping[str, Any]:
    """The options of `mp_parameters` if it is an object; the launch plan checks them."""
    try:
        given = read_mp_parameters(values.get(MP_PARAMETERS, ""))
    except ValueError as error:
        problems.append(f"{MP_PARAMETERS} {error}; give it as a JSON object of options.")
        return {}
    if given and program is None:
        problems.append(
            f"{MP_PARAMETERS} asks for model parallelism, which run_qa, the kit's own program, does not use; remove "
            "smdistributed modelparallel from distribution, or give a program of your own."
        )
        return {}
    return given


def _distribution(
    program: str | None, values: Mapping[str, str], environ: Mapping[str, str], problems: list[str]
) -> LaunchOptions:
    """How to start the ranks, and why. BERTH_DISTRIBUTION overrides the hyperparameters."""
    reasons: list[str] = []

    def on(name: str) -> bool:
        try:
            return decode(values.get(name, ""), bool) is True
        except ValueError:
            problems.append(f"{name} must be true or false, not {values[name]!r}.")
            return False

    mpi = mpi4py = on("sagemaker_mpi_enabled")
    if mpi:
        reasons.append("mpirun: distribution mpi was asked for")
    smddp = on("sagemaker_distributed_dataparallel_enabled")
    if smddp:
        mpi = mpi4py = True
        reasons.append("mpirun: distribution smdistributed dataparallel was asked for")
    for name in _TORCH_LAUNCHERS:
        if on(name):
            mpi = True
            reasons.append(
                f"mpirun: {name} was asked for; mpirun starts the ranks with RANK, WORLD_SIZE and MASTER_ADDR as "
                "torchrun would"
            )
    if distribution := _one_of(environ, "BERTH_DISTRIBUTION", _DISTRIBUTIONS, problems):
        if smddp and distribution != "smddp":
            reasons.append(f"without smdistributed dataparallel: BERTH_DISTRIBUTION says {distribution}")
        smddp = distribution == "smddp"
        if distribution == "none" and program:
            reasons = ["once per host: BERTH_DISTRIBUTION says none"]
            mpi = mpi4py = False
        elif distribution != "none" and (program or smddp):
            mpi = mpi4py = True
            reasons.append(f"mpirun: BERTH_DISTRIBUTION says {distribution}")
    return LaunchOptions(mpi=mpi, mpi4py=mpi4py, smddp=smddp, reasons=tuple(reasons))


def _variables(options: LaunchOptions, environ: Mapping[str, str], problems: list[str]) -> LaunchOptions:
    """The options completed by the other BERTH_* variables; misspelt names are problems."""
    problems += misspelt_ours(environ, _VARIABLES)
    efa = False
    try:
        efa = decode(environ.get(REQUIRE_EFA, ""), bool) is True
    except ValueError:
        problems.append(f"{REQUIRE_EFA} must be 1 or 0, not {environ[REQUIRE_EFA]!r}.")
    level = _one_of(environ, LOG_LEVEL, _LOG_LEVELS, problems)
    smdistributed = _one_of(environ, SMDISTRIBUTED, _SMDISTRIBUTED, problems)

    def collect(read: Callable[[Mapping[str, str]], Any]) -> Any:
        try:
            return read(environ)
        except JobError as error:
            problems.append(str(error))
            return None

    timeout, peer_timeout = collect(read_timeout), collect(read_peer_timeout)
    trace = collect(read_trace) or range(0)
    return replace(
        options,
        efa=efa,
        debug=level == "debug",
        timeout=timeout,
        peer_timeout=peer_timeout,
        trace=trace,
        smdistributed=smdistributed,
    )


def _one_of(environ: Mapping[str, str], name: str, choices: tuple[str, ...], problems: list[str]) -> str:
    """A variable's value if it is one of `choices`, else empty; any other value is a problem."""
    value = environ.get(name, "").strip().lower()
    if value in ("", *choices):
        return value
    problems.append(f"{name} must be {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}.")
    return ""


def read_timeout(environ: Mapping[str, str]) -> float | None:
    """Seconds that hosts wait for each other, None if not set. Raises JobError unless it is a positive number."""
    return _positive(environ, TIMEOUT_VARIABLE, "a number of seconds above 0")


def read_peer_timeout(environ: Mapping[str, str]) -> float | None:
    """Seconds of silence after which a host counts as lost, None if not set. Raises JobError if it is too short."""
    what = f"a number of seconds, {LEAST_PEER_TIMEOUT:.0f} or more"
    return _positive(environ, PEER_TIMEOUT, what, least=LEAST_PEER_TIMEOUT)


def _positive(environ: Mapping[str, str], name: str, what: str, least: float = 0.0) -> float | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e6 or number < least:
        raise JobError(f"{name} must be {what}, not {text!r}.")
    return number


def read_trace(environ: Mapping[str, str]) -> range:
    """The steps to trace, counted from 1, empty if not set. Raises JobError unless it is a step or a short range."""
    text = environ.get(TRACE, "").strip()
    if not text:
        return range(0)
    found = re.fullmatch(r"([0-9]{1,12})(?:-([0-9]{1,12}))?", text)
    steps = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not 0 < len(steps) <= MOST_TRACED or steps[0] < 1:
        raise JobError(
            f"{TRACE} must be a step from 1 on or a range of {MOST_TRACED} steps at most, such as 10 or 10-12, "
            f"not {text!r}."
        )
    return steps


def _processes(
    program: str | None, values: Mapping[str, str], environ: Mapping[str, str], problems: list[str]
) -> tuple[int | None, str]:
    """Processes per host, and the setting that they come from; the first one that is set wins.

    A user's program may have its own hyperparameter `processes_per_host`, so it counts only for run_qa.
    """
    places = {"BERTH_PROCESSES_PER_HOST": environ.get("BERTH_PROCESSES_PER_HOST", "")}
    if program is None:
        places["processes_per_host"] = values.get("processes_per_host", "")
    places["sagemaker_mpi_num_of_processes_per_host"] = values.get("sagemaker_mpi_num_of_processes_per_host", "")
    for source, text in places.items():
        try:
            number = decode(text, int)
        except ValueError:
            number = 0
        if number is UNSET:
            continue
        if 1 <= number <= MOST_PROCESSES:
            return int(number), source
        problems.append(f"{source} must be a whole number from 1 to {MOST_PROCESSES}, not {text!r}.")
    return None, ""


def _mpi_options(values: Mapping[str, str], problems: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The user's options for mpirun, and the variables among them (`-x NAME=value`, the MCA parameter for the same,
    AWS's `--NCCL_DEBUG=INFO`).

    `-x NAME` without a value is dropped: the ranks of each host have its whole environment anyway.
    """
    names = ("sagemaker_mpi_custom_mpi_options", "sagemaker_distributed_dataparallel_custom_mpi_options")
    words: list[str] = []
    for name in names:
        try:
            words += shlex.split(values.get(name, ""))
        except ValueError as error:
            problems.append(f"{name} can't be split into options ({error}); close its quotes.")
    options: list[str] = []
    exports: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word in _SET_BY_PLAN:
            problems.append(f"mpirun's {word} is set by the launch plan; remove it from the custom MPI options.")
            next(rest, None)
        elif word in ("-x", "--x"):
            exports |= _exports([next(rest, "")])
        elif word in ("-mca", "--mca", "-gmca", "--gmca"):
            parameter = [*islice(rest, 2)]
            if parameter[:1] == [_EXPORTS_PARAMETER]:
                exports |= _exports(parameter[-1].split(";"))
            else:
                options += [word, *parameter]
        elif match := re.fullmatch(r"--(NCCL_DEBUG)(?:=(.*))?", word):
            exports[match[1]] = match[2] if match[2] is not None else next(rest, "INFO")
        else:
            options.append(word)
    return tuple(options), exports


def _exports(given: Iterable[str]) -> dict[str, str]:
    """The variables with a value among `NAME=value` and `NAME`."""
    pairs = (text.partition("=") for text in given)
    return {name.strip(): value for name, equals, value in pairs if equals}
