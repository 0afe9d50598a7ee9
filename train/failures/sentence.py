"""Describes an exception in one sentence, with the place in the user's own code and what to do.

Some hints read the user's code (runtime/hints/).
"""

import os
import re
from collections.abc import Sequence

from berth.runtime.failure_file import SENTENCE_CHARACTERS
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.table import remedy
from berth.train.failures.echo import is_echo
from berth.train.failures.raised import Frame, Raised

WHO_CHARACTERS = 100
"""Length reserved for the rank and host before the sentence."""
_BEHIND_CHARACTERS = 220
_MEMBERS_SHOWN = 3
_RULER = re.compile(r"[=-]{6,}")
# Messages about a full disk: of Linux, of Rust's libraries (safetensors), and of a quota.
_FULL_DISK = re.compile(r"No space left on device|StorageFull|Disk quota exceeded")
MORE_DISK = "a disk of this host is full: give the job a larger one (volume_size of the estimator), or write less"


def one_line(text: str, most: int = SENTENCE_CHARACTERS) -> str:
    """`text` without line breaks, cut to `most` characters."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def exception_sentence(raised: Raised, context: ProgramContext) -> str:
    """`ValueError: no rows (raised at train.py:12 in main)`, then the exception behind it, then what to do.

    The message of one of berth's exceptions is already a whole sentence, so it has no type and place.
    """
    if raised.kind.startswith("berth.") and raised.message:
        return one_line(raised.message)
    files = [frame.file for frame in raised.frames]
    hint = remedy(RaisedException(raised.kind, raised.message, files), context)
    if not hint and _FULL_DISK.search(raised.message):
        hint = f"; {MORE_DISK}"
    rest = _place(raised, context) + _members(raised, context) + _behind(raised, context) + hint
    return one_line(_kind_and_message(raised), SENTENCE_CHARACTERS - WHO_CHARACTERS - len(rest)) + rest


def place(frames: Sequence[Frame], context: ProgramContext) -> str:
    """`train.py:12 in main`: the last frame in the user's code, else the last one outside installed packages, else the
    last one; empty if there are no frames.
    """
    own = [frame for frame in frames if context.is_own(frame.file)]
    outside = [frame for frame in frames if "/site-packages/" not in frame.file and not frame.file.startswith("<")]
    # A program from -c or stdin.
    text = [frame for frame in frames if frame.file in ("<string>", "<stdin>")]
    frame = next((part[-1] for part in (own, text, outside, list(frames)) if part), None)
    if frame is None:
        return ""
    # Under mpi4py's runner the program's file is the relative path by which it was started.
    file = os.path.relpath(frame.file, context.code_dir) if own and frame.file.startswith("/") else frame.file
    return f"{file}:{frame.line}" + (f" in {frame.function}" if frame.function else "")


def _kind_and_message(raised: Raised) -> str:
    # Without smdistributed's long internal module path, which no script uses.
    kind = raised.kind.rpartition(".")[2] if raised.kind.startswith("smdistributed.") else raised.kind
    message = " ".join(_RULER.sub(" ", raised.message).split())  # torchrun draws lines
    return f"{kind}: {message}" if message else kind


def _place(raised: Raised, context: ProgramContext) -> str:
    where = place(raised.frames, context)
    return f" (raised at {where})" if where else ""


def _members(raised: Raised, context: ProgramContext) -> str:
    """The exceptions in an exception group; the group's own message does not name them."""
    shown = [
        one_line(_kind_and_message(member), _BEHIND_CHARACTERS) + _place(member, context)
        for member in raised.members[:_MEMBERS_SHOWN]
    ]
    return f", of {'; '.join(shown)}" if shown else ""


def _behind(raised: Raised, context: ProgramContext) -> str:
    """The exception that this one was raised from, or while handling it."""
    text, behind = _kind_and_message(raised), raised.behind
    while behind is not None and _kind_and_message(behind) == text:  # pandas raises a KeyError from an equal one
        behind = behind.behind
    if behind is None or (not raised.caused and is_echo(_kind_and_message(behind))):
        return ""
    how = "caused by" if raised.caused else "while handling"
    return f", {how} {one_line(_kind_and_message(behind), _BEHIND_CHARACTERS)}{_place(behind, context)}"
