"""The logger of the training image: whole lines, each starting with `berth: `.

Another thread of the entry writes the ranks' output (berth.train.launching.runfolder); one lock keeps lines whole.
Text of other programs (pip, mpirun, exceptions) may contain secrets, so every record is masked.
"""

import logging
import os
import sys
import threading

from berth.contract.masking import mask_text
from berth.runtime.log import PREFIX

_WRITING = threading.Lock()


class _LineHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = "".join(f"{PREFIX}{line}\n" for line in mask_text(record.getMessage()).splitlines() or [""])
        write_all(sys.stdout.fileno(), text.encode("utf-8", "replace"))


def write_all(descriptor: int, data: bytes) -> None:
    """Write whole lines, one caller at a time; a slow reader may take them in pieces."""
    with _WRITING:
        while data:
            data = data[os.write(descriptor, data) :]


def get_logger() -> logging.Logger:
    """The logger `berth.train`. The first call sets it up."""
    logger = logging.getLogger("berth.train")
    if not any(isinstance(handler, _LineHandler) for handler in logger.handlers):
        logger.addHandler(_LineHandler())
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger
