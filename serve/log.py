"""The shape of this server's log lines: `berth: …`, with the level only where it matters.

One handler on the root logger, on stderr, so that libraries' warnings come out in the same shape. SageMaker and Docker
collect both streams; stderr is never buffered and writes characters that are not UTF-8 as escapes rather than failing.
"""

import logging
import sys

from berth.runtime.log import PREFIX


class LineFormatter(logging.Formatter):
    """`berth: text`, with the level from WARNING on (`berth: warning: text`); libraries' lines name the library."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        own = record.name == "berth" or record.name.startswith("berth.")
        source = "" if own else f"{record.name}: "
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{PREFIX}{level}{source}{text}"


def configure() -> None:
    """Send every logger of this process to stderr in the kit's shape: ours from INFO on, libraries' from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    set_level(logging.INFO)
    logging.captureWarnings(capture=True)


def set_level(level: int) -> None:
    """From which level on our own lines are written, and libraries' where it is above theirs."""
    logging.getLogger("berth").setLevel(level)
    logging.getLogger().setLevel(max(level, logging.WARNING))
