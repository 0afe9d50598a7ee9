"""The server's environment variables: one table of how each is parsed and where it has an effect.

Reading, errors, the check for misspelt names and the warning about variables without effect all use it. A test compares
the table in serve/README.md with it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.launch_options import TRAINING_VARIABLES
from berth.contract.variables import PREFIX, misspelt_ours
from berth.runtime.engines import choose
from berth.serve.hub import ID_VARIABLE, REVISION_VARIABLE
from berth.serve.limits import PAYLOAD_VARIABLE, REQUEST_TOKENS, TOKENS_VARIABLE
from berth.serve.observing import log

PROGRAM_VARIABLE = "SAGEMAKER_PROGRAM"
SUBMIT_VARIABLE = "SAGEMAKER_SUBMIT_DIRECTORY"
MULTI_VARIABLE = "SAGEMAKER_MULTI_MODEL"
_MOST_DIGITS = 12
_SHOWN_CHARACTERS = 80

# Prefixes of variables that SageMaker, its SDKs and users of other servers set, and that this server does not read.
_OTHER_SERVERS = ("MMS_", "TS_", "SAGEMAKER_TS_", "SAGEMAKER_SAFE_PORT_RANGE", "SAGEMAKER_USE_NGINX")


def whole(least: int, most: int) -> Callable[[str], int]:
    """Parses a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        if not (text.isdecimal() and len(text) <= _MOST_DIGITS and least <= int(text) <= most):
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return parse


def one_of(*known: str) -> Callable[[str], str]:
    """Parses one of these words, in upper or lower case."""

    def parse(text: str) -> str:
        word = next((name for name in known if name.lower() == text.lower()), None)
        if word is None:
            raise ValueError(f"one of {', '.join(known)}")
        return word

    return parse


def true_or_false(text: str) -> bool:
    """Parses `true` or `false`, in upper or lower case, because the SDKs send `True`."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def log_level(text: str) -> int:
    """Parses a level's name, or its number in the module logging."""
    level = log.level_of(text)
    if level is None:
        raise ValueError(f"one of {', '.join(log.LEVELS)} or logging's number")
    return level


def media_type(text: str) -> str:
    """Accepts every media type, because a handler may answer in any."""
    if "/" not in text:
        raise ValueError("a media type, such as text/csv")
    return text


@dataclass(frozen=True, slots=True)
class Variable:
    """A row of the table. `aliases`: other names; the first of all its names that is set counts."""

    name: str
    parse: Callable[[str], Any] = str
    """Called with a text that is not empty; its ValueError contains what the text must be."""
    default: Any = ""
    aliases: tuple[str, ...] = ()
    many: bool = True
    """Whether it has an effect on a multi-model endpoint."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases, in order of priority."""
        return (self.name, *self.aliases)

    def read(self, environ: Mapping[str, str]) -> Any:
        """The value of the first name that is set, else the default; ValueError with a sentence if it is invalid."""
        for name in self.set_names(environ):
            text = environ[name].strip()
            try:
                return self.parse(text)
            except ValueError as error:
                raise ValueError(f"{name} is `{text[:_SHOWN_CHARACTERS]}`: it must be {error}") from error
        return self.default

    def set_names(self, environ: Mapping[str, str]) -> list[str]:
        """The names in `environ` with a value; the first of them counts."""
        return [name for name in self.names if environ.get(name, "").strip()]


PRECISION = Variable(choose.PRECISION_VARIABLE, one_of(*choose.PRECISIONS))
GRAPH_DIR = Variable(choose.FOLDER_VARIABLE, Path, Path(choose.DEFAULT_FOLDER), many=False)
MAX_REQUEST_TOKENS = Variable(TOKENS_VARIABLE, whole(512, 100_000_000), REQUEST_TOKENS)
LOG_FORMAT = Variable(log.FORMAT_VARIABLE, one_of(*log.FORMATS), log.FORMATS[0])
PAGE = Variable("BERTH_PAGE", one_of("on", "off"), "on", many=False)
FAILURE_GRACE = Variable("BERTH_FAILURE_GRACE", whole(0, 3600), 10, many=False)
MODEL_ID = Variable(ID_VARIABLE, many=False)
MODEL_REVISION = Variable(REVISION_VARIABLE, default="main", many=False)
TOKEN = Variable("HF_TOKEN")
TASK = Variable("HF_TASK", default="question-answering")
OFFLINE = Variable("HF_HUB_OFFLINE")
THREADS = Variable("OMP_NUM_THREADS")
PORT = Variable("SAGEMAKER_BIND_TO_PORT", whole(1, 65535), 8080)
WORKERS = Variable(
    "SAGEMAKER_MODEL_SERVER_WORKERS",
    whole(1, 256),
    0,
    ("MMS_DEFAULT_WORKERS_PER_MODEL", "TS_DEFAULT_WORKERS_PER_MODEL"),
    many=False,
)
# SAGEMAKER_MODEL_SERVER_TIMEOUT is in seconds here. Multi Model Server counted minutes, but users mean seconds.
TIMEOUT = Variable(
    "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS",
    whole(1, 86_400),
    None,
    ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "MMS_DEFAULT_RESPONSE_TIMEOUT", "TS_DEFAULT_RESPONSE_TIMEOUT"),
)
PAYLOAD_MB = Variable(PAYLOAD_VARIABLE, whole(0, 1024), None)
ACCEPT = Variable("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", media_type, None)
LOG_LEVEL = Variable(log.LEVEL_VARIABLE, log_level, log.LEVELS["info"])
PROGRAM = Variable(PROGRAM_VARIABLE, default="inference.py")
SUBMIT_DIRECTORY = Variable(SUBMIT_VARIABLE)
MULTI_MODEL = Variable(MULTI_VARIABLE, true_or_false, default=False)
BATCH = Variable("SAGEMAKER_BATCH", true_or_false, default=False)
BASE_DIR = Variable("SAGEMAKER_BASE_DIR", Path, Path("/opt/ml"))
REGION = Variable("SAGEMAKER_REGION")

VARIABLES = tuple(value for value in list(globals().values()) if isinstance(value, Variable))
"""The whole table."""
NAMES = tuple(name for variable in VARIABLES for name in variable.names)


def misspelt_names(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each name in `environ` that is nearly a BERTH_… name; the training image's names are skipped."""
    ours = [name for name in NAMES if name.startswith(PREFIX)]
    return misspelt_ours((name for name in environ if name not in TRAINING_VARIABLES), ours)


def unused_names(environ: Mapping[str, str]) -> Iterator[str]:
    """The names that are set but not in the table: other servers' names, and unknown names that begin with BERTH_."""
    for name, value in environ.items():
        ours = name.startswith(PREFIX) and name not in TRAINING_VARIABLES
        if value and name not in NAMES and (ours or name.startswith(_OTHER_SERVERS)):
            yield name


def without_effect(environ: Mapping[str, str], is_read: Callable[[Variable], bool]) -> Iterator[str]:
    """The set names of the variables for which `is_read` is false."""
    for variable in VARIABLES:
        if not is_read(variable):
            yield from variable.set_names(environ)
