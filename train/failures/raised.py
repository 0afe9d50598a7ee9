"""One exception, whether the interpreter recorded it or it was read from stderr. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
# torch puts this before each line of an exception once the process group has started (2.13).
_TORCH_RANK = re.compile(r"^\[rank\d+\]: ?")
# An exception group's traceback is indented behind a bar.
_GROUP_BAR = re.compile(r"^ *[|+] ?")
# What may follow an exception's message and is not part of it: lines of torch, Open MPI and Python, a progress bar.
_AFTER_MESSAGE = re.compile(
    r"^\s*$|^\[(?:rank\d+\]:\s*)?\[?[WEIF]\d|^\[[\w.-]+:\d+\]|^-{10,}|MPI_ABORT|Traceback \(most recent call last\)|"
    r"^(?:The above exception|During handling of the above|Exception ignored in|Error in )|^\S+Warning: |"
    r": \w+Warning: |\d%\||\d(?:it|s)/(?:it|s)\]|\[\d\d:\d\d<"
)
_MESSAGE_LINES = 10
_WARNING = re.compile(r"^\[?[WI]\d{4} |:\d+: \w*Warning: ")

# A program that starts others raises these when one of them has failed.
_LAUNCHERS = frozenset(
    {
        "subprocess.CalledProcessError",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        "torch.distributed.elastic.multiprocessing.api.SignalException",
        "torch.multiprocessing.spawn.ProcessExitedException",
        "torch.multiprocessing.spawn.ProcessRaisedException",
        "concurrent.futures.process.BrokenProcessPool",
    }
)
# Of ChildFailedError: "Root Cause (first observed failure): [0]: time : … rank : 1 (local_rank: 1) exitcode : -9".
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*: (?P<rank>\d+).*?exitcode\s*: -(?P<signal>\d+)", re.DOTALL)
# The text of a child's traceback, which concurrent.futures and multiprocessing put behind the exception itself.
_REMOTE = ("_RemoteTraceback", "RemoteTraceback")


@dataclass(frozen=True, slots=True)
class Frame:
    """`file` as Python names it, `line` from 1, `function` empty where none is known."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: `kind` with its module, as a traceback names it; the whole `message`; frames, outermost first.

    `behind` is the exception before it in the chain, which `caused` it (`raise … from …`) or was being handled.
    """

    kind: str
    message: str
    frames: tuple[Frame, ...] = ()
    behind: "Raised | None" = None
    caused: bool = False
    members: tuple["Raised", ...] = ()

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> "Raised":
        """Read what `python_end` described."""
        behind = fields["behind"]
        return cls(
            kind=str(fields["kind"]),
            message=str(fields["message"]),
            frames=read_frames(fields["frames"]),
            behind=None if behind is None else cls.from_record(behind),
            caused=bool(fields["caused"]),
            members=tuple(cls.from_record(member) for member in fields["members"]),
        )

    @property
    def is_launchers(self) -> bool:
        """Whether it only says that a process which the program started has failed."""
        return self.kind in _LAUNCHERS

    @property
    def first_line(self) -> str:
        """Kind and the first line of the message, among whose later lines other threads' lines may be."""
        return f"{self.kind}: {self.message.partition(chr(10))[0]}"


def killed_rank(launchers: Sequence[Raised]) -> tuple[str, int] | None:
    """The rank that a signal killed, and the signal, by torchrun's own exception (2.13); None if it names none."""
    for raised in launchers:
        match = _ROOT_CAUSE.search(raised.message)
        if match:
            return match["rank"], int(match["signal"])
    return None


def read_frames(rows: Sequence[Sequence[Any]]) -> tuple[Frame, ...]:
    """Frames of a record; a function's name is empty for a module's own code."""
    return tuple(Frame(str(file), int(line), _function(str(name))) for file, line, name in rows)


def _function(name: str) -> str:
    return "" if name == "<module>" else name


def innermost(raised: Raised) -> Raised:
    """The exception of the process where it was raised, for one that brings another process' traceback as text: of a
    DataLoader's worker, of `mp.spawn`, of a process pool.
    """
    behind = raised.behind
    if behind is not None and behind.kind.rpartition(".")[2] in _REMOTE:
        inner = last_traceback(behind.message.splitlines())
        return raised if inner is None else replace(raised, frames=inner.frames, behind=None)
    if TRACEBACK in raised.message:
        inner = last_traceback(raised.message.splitlines())
        return raised if inner is None else inner
    return raised


def without_rank(line: str) -> str:
    """A line of stderr without the `[rank0]: ` that torch puts before those of an exception."""
    return _TORCH_RANK.sub("", line)


def begins_traceback(line: str) -> bool:
    """Whether a traceback begins with this line. A progress bar may stand before it: it leaves its line open."""
    return line.rstrip().endswith(TRACEBACK)


def last_traceback(lines: Sequence[str]) -> Raised | None:
    """The last whole traceback in `lines`; None if there is none."""
    return next((found for found, _ in reversed(tracebacks(lines))), None)


def tracebacks(lines: Sequence[str]) -> list[tuple[Raised, int]]:
    """All whole tracebacks in `lines`, each with the number of the line behind its message.

    A SyntaxError of the program itself has a frame but no "Traceback" line above it.
    """
    found: list[tuple[Raised, int]] = []
    frames: list[Frame] = []
    inside = grouped = False
    for index, line in enumerate(lines):
        if begins_traceback(line):
            grouped = "Exception Group" in line
            frames, inside = [], True
            continue
        text = _GROUP_BAR.sub("", line) if grouped and inside else line
        if frame := _FRAME.match(f"  {text}" if grouped and inside else text):
            if not inside:
                frames, inside = [], True
            frames.append(Frame(frame["file"], int(frame["line"]), _function(frame["function"] or "")))
        elif inside and frames and (match := _EXCEPTION.match(text)):
            later = [] if grouped else _later_lines(lines[index + 1 :])
            message = "\n".join([match["message"] or "", *later]).strip()
            found.append((Raised(match["kind"], message, tuple(frames)), index + 1 + len(later)))
            inside = grouped = False
    return found


def _later_lines(lines: Sequence[str]) -> list[str]:
    """The lines of an exception's message after its first."""
    later: list[str] = []
    for line in lines[:_MESSAGE_LINES]:
        if is_noise(line):
            break
        later.append(line.strip())
    return later


def without_chatter(lines: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Lines of stderr less warnings, of torch and of Python, with the line of code below them."""
    kept: list[tuple[str, float]] = []
    warned = False
    for line, when in lines:
        code_of_warning = warned and line.startswith("  ")
        warned = _WARNING.search(line) is not None
        if not warned and not code_of_warning:
            kept.append((line, when))
    return kept


def is_noise(line: str) -> bool:
    """Whether a line behind an exception's message says nothing of it."""
    return _AFTER_MESSAGE.search(line) is not None
