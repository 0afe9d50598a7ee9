"""The shape of this server's log lines: `berth: …`, with the level only where it matters, or JSON where that is asked
for.

One handler on the root logger, on stderr, so that libraries' warnings come out in the same shape. SageMaker and Docker
collect both streams; stderr is never buffered and writes characters that are not UTF-8 as escapes rather than failing.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from berth.runtime.log import PREFIX

FORMAT_VARIABLE = "BERTH_LOG_FORMAT"
FORMATS = ("text", "json")
LEVEL_VARIABLE = "SAGEMAKER_CONTAINER_LOG_LEVEL"
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
FIELDS = "fields"
"""What a record's `extra` holds for a line in JSON besides its message."""
# Libraries of the image, or that handlers usually bring, which log their own work at INFO or DEBUG. A handler can set
# another level for each.
_LIBRARIES = (
    *("accelerate", "asyncio", "boto3", "botocore", "datasets", "filelock", "fsspec", "httpcore", "httpx"),
    *(
        "huggingface_hub",
        "matplotlib",
        "nncf",
        "numba",
        "openvino",
        "PIL",
        "s3transfer",
        "sagemaker",
        "sagemaker_inference",
    ),
    *("sentence_transformers", "tensorflow", "torch", "transformers", "urllib3"),
)


class LineFormatter(logging.Formatter):
    """`berth: text`, with the level from WARNING on (`berth: warning: text`); libraries' lines name the library."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        own = record.name == "berth" or record.name.startswith("berth.")
        source = "" if own else f"{record.name}: "
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{PREFIX}{level}{source}{text}"


class JsonFormatter(logging.Formatter):
    """An object a line: time (UTC), level, logger, message, a traceback if there is one, and a request's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, FIELDS, {}), ensure_ascii=False)


def level_of(text: str) -> int | None:
    """logging's number of a level that is given by its name, as people write it, or by its number, as SageMaker's SDK
    sends it; None for another text.
    """
    names = LEVELS | {str(number): number for number in LEVELS.values()}
    return names.get(text.strip().lower())


def configure(environ: Mapping[str, str], *, user_code: bool = False) -> None:
    """Send every logger of this process to stderr in the kit's shape, from the level that the environment asks for.

    Libraries are shown from WARNING on. With `user_code` (a process that runs a model's own code) every logger is shown
    except those of the libraries in `_LIBRARIES`: the level of a user's own loggers is the user's to decide.
    """
    handler = logging.StreamHandler(sys.stderr)
    wanted = environ.get(FORMAT_VARIABLE, "").strip().lower()
    handler.setFormatter(JsonFormatter() if wanted == "json" else LineFormatter())
    level = level_of(environ.get(LEVEL_VARIABLE, "")) or logging.INFO  # settings.py refuses another text
    of_libraries = max(level, logging.WARNING)
    logging.basicConfig(handlers=[handler], level=level if user_code else of_libraries, force=True)
    logging.getLogger("berth").setLevel(level)
    for name in _LIBRARIES if user_code else ():
        logging.getLogger(name).setLevel(of_libraries)
    logging.captureWarnings(capture=True)
