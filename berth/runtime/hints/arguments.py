"""Arguments that argparse rejected; a job passes every hyperparameter as `--name value`."""

import re
from collections.abc import Sequence

from berth.contract.nearest import close_match
from berth.runtime.hints.program import ProgramContext
from berth.runtime.hints.sources import parser_arguments

_ERROR = re.compile(r"^\S+: error: (?P<message>.*)$")
_UNRECOGNIZED = re.compile(r"unrecognized arguments: (?P<rest>.*)")
_REQUIRED = re.compile(r"the following arguments are required: (?P<names>.*)")
_EXPLICIT = re.compile(r"argument (?P<names>\S+): ignored explicit argument '(?P<value>.*)'")
_LOCAL_RANK = ("local_rank", "local-rank")
_FROM_ENVIRONMENT = {
    "model_dir": "SM_MODEL_DIR",
    "output_dir": "SM_MODEL_DIR",
    "output_data_dir": "SM_OUTPUT_DATA_DIR",
    "checkpoint_dir": "",
    "hosts": "SM_HOSTS",
    "current_host": "SM_CURRENT_HOST",
    "num_gpus": "SM_NUM_GPUS",
}
_RANK_DEFAULT = 'int(os.environ.get("LOCAL_RANK", 0))'


def line_hint(line: str, context: ProgramContext) -> str:
    """The hint for argparse's last line."""
    match = _ERROR.match(line)
    if match is None:
        return ""
    message, known = match["message"], parser_arguments(context.code_dir)
    if found := _UNRECOGNIZED.match(message):
        words = found["rest"].split()
        return _with_value(_valued_flags(context.command, known)) or _unknown(words, known)
    if found := _EXPLICIT.match(message):
        flag = found["names"].rpartition("/")[2].lstrip("-")
        return _with_value([(flag, f"--{flag}={found['value']}")])
    if found := _REQUIRED.match(message):
        return _required([name.rpartition("/")[2].lstrip("-") for name in found["names"].split(", ")], context)
    return ""


def _valued_flags(command: Sequence[str], known: dict[str, bool]) -> list[tuple[str, str]]:
    """Flags that take no value but got one: the name, and the argument as it was passed."""
    pairs = zip(command, [*command[1:], "--"], strict=True)
    return [
        (option, f"--{option} {value}")
        for word, value in pairs
        if word.startswith("--") and not value.startswith("-")
        if (option := word.removeprefix("--")) in known and not known[option]
    ]


def _with_value(flags: Sequence[tuple[str, str]]) -> str:
    if not flags:
        return ""
    which = " and ".join(f'{name} is passed as "{passed}"' for name, passed in flags)
    return f'; {which}, but a store_true flag takes no value; use type=lambda v: v.lower() == "true"'


def _unknown(words: Sequence[str], known: dict[str, bool]) -> str:
    names = [word.lstrip("-").partition("=")[0] for word in words if word.startswith("--")]
    if not names:
        return ""
    if any(name in _LOCAL_RANK for name in names):
        return (
            f"; a launcher passes each rank its number in the environment: read {_RANK_DEFAULT} instead of an argument"
        )
    advice = []
    for name in names:
        near = close_match(name, sorted(known), 0.75)
        advice.append(f"did you mean {near} for {name}?" if near else f'add parser.add_argument("--{name}")')
    more = "" if all(each.startswith("did") for each in advice) else ", or call parse_known_args()"
    return f"; every hyperparameter is passed to the program: {' '.join(advice)}{more}"


def _required(names: Sequence[str], context: ProgramContext) -> str:
    ways = []
    for name in names:
        plain = name.replace("-", "_")
        if name in _LOCAL_RANK:
            ways.append(f"give {name} default={_RANK_DEFAULT}")
        elif variable := _FROM_ENVIRONMENT.get(plain) or _channel_variable(plain, context):
            ways.append(f'give {name} default=os.environ["{variable}"] and required=False')
        else:
            ways.append(f"give the job the hyperparameter {name}")
    return f"; {', '.join(ways)}"


def _channel_variable(name: str, context: ProgramContext) -> str:
    """SM_CHANNEL_TRAIN for `train_dir`, if the job has that channel."""
    stem = re.sub(r"_(?:dir|path|file|data|data_dir|folder)$", "", name)
    known = [f"SM_CHANNEL_{channel.upper()}" for channel in context.channels]
    if stem in ("data", "dataset", "input") and len(known) == 1:
        return known[0]
    return close_match(f"SM_CHANNEL_{stem.upper()}", known)
