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
FIELDS = "fields"
"""What a record's `extra` holds for a line in JSON besides its message."""


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


def configure(environ: Mapping[str, str]) -> None:
    """Send every logger of this process to stderr in the kit's shape: ours from INFO on, libraries' from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    wanted = environ.get(FORMAT_VARIABLE, "").strip().lower()
    handler.setFormatter(JsonFormatter() if wanted == "json" else LineFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    set_level(logging.INFO)
    logging.captureWarnings(capture=True)


def set_level(level: int) -> None:
    """From which level on our own lines are written, and libraries' where it is above theirs."""
    logging.getLogger("berth").setLevel(level)
    logging.getLogger().setLevel(max(level, logging.WARNING))
