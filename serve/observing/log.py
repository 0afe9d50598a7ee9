"""The format of this server's log lines: `berth: …`, with the level from WARNING on; or JSON, if BERTH_LOG_FORMAT asks
for it.

One handler on the root logger writes to stderr, so that libraries' warnings have the same format. SageMaker and Docker
collect stdout and stderr; stderr is never buffered, and escapes characters that it can't encode instead of failing.
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
"""Key in a log record's `extra`; its value is a dict of further fields for a JSON line."""
# Libraries of the image, and common ones of handlers, that log their own work at INFO or DEBUG. A handler can set
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
    """`berth: text`, from WARNING on with the level (`berth: warning: text`); other loggers' lines have their name."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        own = record.name == "berth" or record.name.startswith("berth.")
        source = "" if own else f"{record.name}: "
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{PREFIX}{level}{source}{text}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, message, a traceback if there is one, and the FIELDS."""

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
    """logging's number of a level. `text` is its name, or its number, which SageMaker's SDK sends; None for any other
    text.
    """
    names = LEVELS | {str(number): number for number in LEVELS.values()}
    return names.get(text.strip().lower())


def configure(environ: Mapping[str, str], *, user_code: bool = False) -> None:
    """Send every logger of this process to stderr in the kit's format, from the level that the environment sets.

    Libraries log from WARNING on, or from a higher level that is set. With `user_code` (a process that runs a handler)
    this applies only to the libraries in `_LIBRARIES`, because a user's own loggers should follow the environment.
    """
    handler = logging.StreamHandler(sys.stderr)
    line_format = environ.get(FORMAT_VARIABLE, "").strip().lower()
    handler.setFormatter(JsonFormatter() if line_format == "json" else LineFormatter())
    level = level_of(environ.get(LEVEL_VARIABLE, "")) or logging.INFO  # read_settings refuses an invalid level
    library_level = max(level, logging.WARNING)
    logging.basicConfig(handlers=[handler], level=level if user_code else library_level, force=True)
    logging.getLogger("berth").setLevel(level)
    for name in _LIBRARIES if user_code else ():
        logging.getLogger(name).setLevel(library_level)
    logging.captureWarnings(capture=True)
