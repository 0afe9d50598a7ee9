"""An exception in one sentence, with the place in the user's own code and what helps. Hints read that code."""

import os
import re
from collections.abc import Sequence

from berth.runtime.failure_file import SENTENCE_CHARACTERS
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.table import remedy
from berth.train.failures.echo import is_echo
from berth.train.failures.raised import Frame, Raised

WHO_CHARACTERS = 100
"""Room for the rank and host in front of it."""
_BEHIND_CHARACTERS = 220
_MEMBERS_SHOWN = 3
_RULER = re.compile(r"[=-]{6,}")
# A full disk, in the words of the system, of Rust's libraries (safetensors) and of a quota.
_FULL_DISK = re.compile(r"No space left on device|StorageFull|Disk quota exceeded")
MORE_DISK = "a disk of this host is full: give the job a larger one (volume_size of the estimator), or write less to it"


def one_line(text: str, most: int = SENTENCE_CHARACTERS) -> str:
    """`text` without line breaks, cut to `most` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def exception_sentence(raised: Raised, context: ProgramContext) -> str:
    """`ValueError: no rows (raised at train.py:12 in main)`, then the exception behind it, then what helps.

    The place is the last frame in the user's code, else the last outside installed packages, else the last. An
    exception of the kit's own is a whole sentence already and stands without type and place.
    """
    if raised.kind.startswith("berth.") and raised.message:
        return one_line(raised.message)
    files = [frame.file for frame in raised.frames]
    help_with = remedy(RaisedException(raised.kind, raised.message, files), context)
    if not help_with and _FULL_DISK.search(raised.message):
        help_with = f"; {MORE_DISK}"
    rest = _place(raised, context) + _members(raised, context) + _behind(raised, context) + help_with
    return one_line(_named(raised), SENTENCE_CHARACTERS - WHO_CHARACTERS - len(rest)) + rest


def place(frames: Sequence[Frame], context: ProgramContext) -> str:
    """`train.py:12 in main`: the last frame in the user's code; empty where there is no frame at all."""
    # Under mpi4py's runner the program has the relative name by which it was started.
    own = [frame for frame in frames if context.is_own(frame.file)]
    outside = [frame for frame in frames if "/site-packages/" not in frame.file and not frame.file.startswith("<")]
    # A program given by -c or on stdin.
    text = [frame for frame in frames if frame.file in ("<string>", "<stdin>")]
    chosen = next((part[-1] for part in (own, text, outside, list(frames)) if part), None)
    if chosen is None:
        return ""
    shown = os.path.relpath(chosen.file, context.code_dir) if own and chosen.file.startswith("/") else chosen.file
    return f"{shown}:{chosen.line}" + (f" in {chosen.function}" if chosen.function else "")


def _named(raised: Raised) -> str:
    # A path of five names that no script writes.
    kind = raised.kind.rpartition(".")[2] if raised.kind.startswith("smdistributed.") else raised.kind
    message = " ".join(_RULER.sub(" ", raised.message).split())  # torchrun draws lines
    return f"{kind}: {message}" if message else kind


def _place(raised: Raised, context: ProgramContext) -> str:
    where = place(raised.frames, context)
    return f" (raised at {where})" if where else ""


def _members(raised: Raised, context: ProgramContext) -> str:
    """Of an exception group the exceptions in it, whose text its own does not have."""
    shown = [
        one_line(_named(member), _BEHIND_CHARACTERS) + _place(member, context)
        for member in raised.members[:_MEMBERS_SHOWN]
    ]
    return f", of {'; '.join(shown)}" if shown else ""


def _behind(raised: Raised, context: ProgramContext) -> str:
    """The exception that this one was raised from, or while it was handled."""
    behind = raised.behind
    while behind is not None and _named(behind) == _named(raised):  # pandas raises a KeyError from the same one
        behind = behind.behind
    if behind is None or (not raised.caused and is_echo(_named(behind))):
        return ""
    how = "caused by" if raised.caused else "while handling"
    return f", {how} {one_line(_named(behind), _BEHIND_CHARACTERS)}{_place(behind, context)}"
