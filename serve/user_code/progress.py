"""Lines in the log while a handler loads its model: that it does, and where in the user's code it is."""

import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.serve.user_code.find import UserCode

log = logging.getLogger(__name__)

FIRST_SECONDS = 30.0


@contextmanager
def report_progress(code: UserCode, first: float = FIRST_SECONDS) -> Iterator[None]:
    """Log where this thread is after `first` seconds, and then each time that twice as many have passed."""
    log.info("loading the model's own code")
    ended = threading.Event()
    thread = threading.get_ident()

    def report() -> None:
        seconds = first
        waits = first
        while not ended.wait(waits):
            log.info("%s has been loading for %.0f s%s", code.file, seconds, _place(thread, code))
            waits, seconds = seconds, 2 * seconds

    threading.Thread(target=report, name="progress", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _place(thread: int, code: UserCode) -> str:
    """`, now at inference.py:7`: the innermost line of the user's code that the thread is in."""
    frames = traceback.extract_stack(sys._current_frames().get(thread))
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(code.folder)]
    return f", now at {Path(own[-1].filename).relative_to(code.folder)}:{own[-1].lineno}" if own else ""
