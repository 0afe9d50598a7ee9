"""Environment variables that a program reads and its job or endpoint does not set."""

import re

from berth.contract.nearest import close_match
from berth.runtime.hints.program import ProgramContext, RaisedException

_RANK_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
)
_TORCH_RENDEZVOUS = re.compile(r"env:// rendezvous: environment variable (\w+) expected, but not set")
_JOB_VARIABLES = re.compile(r"SM_\w+|(?:LOCAL_|WORLD_)?RANK|(?:LOCAL_)?WORLD_SIZE")
_CHANNEL, _HYPERPARAMETER = "SM_CHANNEL_", "SM_HP_"


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """Where the value is, or how the program gets the variable."""
    if match := _TORCH_RENDEZVOUS.search(raised.message):
        return _rank_variable(match[1])
    name = raised.message.strip("'\"")
    from_os = bool(raised.files) and (raised.files[-1] == "<frozen os>" or raised.files[-1].endswith("/os.py"))
    if raised.kind != "KeyError" or not from_os:
        return ""
    if context.serving:
        return _of_endpoint(name)
    if name in _RANK_VARIABLES:
        return _rank_variable(name)
    if name.startswith(_CHANNEL):
        return _channel(name, context)
    if name.startswith(_HYPERPARAMETER):
        wanted, near = name.removeprefix(_HYPERPARAMETER).lower(), _near(name, context)
        return f"; the job has no hyperparameter {wanted}: give it one" + (f", or read {near}" if near else "")
    if name.startswith("SM_"):
        near = _near(name, context)
        return f"; read {near}" if near else ""
    return (
        f'; the job has no such variable: give it one, environment={{"{name}": "…"}} (with build.py run: -e {name}=…)'
    )


def _of_endpoint(name: str) -> str:
    if _JOB_VARIABLES.fullmatch(name):
        return f"; {name} is a variable of training jobs: model_fn gets the model's folder as model_dir"
    return f'; the endpoint has no such variable: give the model env={{"{name}": "…"}} (with build.py run: -e {name}=…)'


def _rank_variable(name: str) -> str:
    default = "1" if "SIZE" in name else "0"
    return (
        f"; the program runs once per host here, without ranks: set the job's variable BERTH_DISTRIBUTION to mpi, or "
        f'read int(os.environ.get("{name}", {default}))'
    )


def _channel(name: str, context: ProgramContext) -> str:
    if not context.channels:
        option = "--model" if name == f"{_CHANNEL}MODEL" else "--data"
        return f"; the job has no channels: give it data (fit(inputs), or {option})"
    near = _near(name, context)
    read = f"read {near}, or " if near else ""
    names = " and ".join(context.channels)
    return f"; the job's channels are {names}: {read}name one {name.removeprefix(_CHANNEL).lower()}"


def _near(name: str, context: ProgramContext) -> str:
    """The most similar variable of the same kind that the job sets; empty if none is similar."""
    prefix = next(each for each in (_HYPERPARAMETER, _CHANNEL, "SM_") if name.startswith(each))
    return close_match(name, sorted(each for each in context.environ if each.startswith(prefix)))
