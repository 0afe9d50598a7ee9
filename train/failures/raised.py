"""One exception, either from a record of the interpreter or from stderr. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?::(?: (?P<message>.*))?)?$")
# torch's prefix of each line of an exception once the process group has started (2.13).
_TORCH_RANK = re.compile(r"^\[rank\d+\]: ?")
# Lines that can follow an exception's message but are not part of it: of torch, Open MPI, Python or a progress bar.
_AFTER_MESSAGE = re.compile(
    r"^\s*$|^\[(?:rank\d+\]:\s*)?\[?[WEIF]\d|^\[[\w.-]+:\d+\]|^-{10,}|MPI_ABORT|Traceback \(most recent call last\)|"
    r"^(?:The above exception|During handling of the above|Exception ignored in|Error in )|^\S+Warning: |"
    r": \w+Warning: |\d%\||\d(?:it|s)/(?:it|s)\]|\[\d\d:\d\d<"
)
_MORE_MESSAGE_LINES = 10
_WARNING = re.compile(r"^\[?[WI]\d{4} |:\d+: \w*Warning: ")

# Exceptions of a program whose child process has failed.
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
# In ChildFailedError: "Root Cause (first observed failure): [0]: time : … rank : 1 (local_rank: 1) exitcode : -9".
_ROOT_CAUSE = re.compile(r"Root Cause.*?rank\s*: (?P<rank>\d+).*?exitcode\s*: -(?P<signal>\d+)", re.DOTALL)
# concurrent.futures and multiprocessing chain these to a child's exception; their text is the child's traceback.
_REMOTE = ("_RemoteTraceback", "RemoteTraceback")


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a traceback: `line` counts from 1; `function` is empty for a module's code, or if it is unknown."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception: `kind` with its module, as in a traceback; the whole `message`; frames, the outermost first.

    behind: the previous exception in the chain; it `caused` this one (`raise … from …`), or was being handled.
    members: of an exception group.
    """

    kind: str
    message: str
    frames: tuple[Frame, ...] = ()
    behind: "Raised | None" = None
    caused: bool = False
    members: tuple["Raised", ...] = ()

    @classmethod
    def from_record(cls, fields: Mapping[str, Any]) -> "Raised":
        """The exception in a record of `python_end`."""
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
        """Whether it only says that a child process has failed."""
        return self.kind in _LAUNCHERS

    @property
    def first_line(self) -> str:
        """The kind and the first line of the message; later lines may come from other threads."""
        return f"{self.kind}: {self.message.partition(chr(10))[0]}"


def killed_rank(launchers: Sequence[Raised]) -> tuple[str, int] | None:
    """The rank that a signal killed, and the signal, from torchrun's exception (2.13); None if it names none."""
    for raised in launchers:
        match = _ROOT_CAUSE.search(raised.message)
        if match:
            return match["rank"], int(match["signal"])
    return None


def read_frames(rows: Sequence[Sequence[Any]]) -> tuple[Frame, ...]:
    """The frames of a record, from rows of file, line and function."""
    return tuple(Frame(str(file), int(line), _function(str(name))) for file, line, name in rows)


def _function(name: str) -> str:
    return "" if name == "<module>" else name


def innermost(raised: Raised) -> Raised:
    """The original exception, if `raised` contains another process' traceback as text (from a DataLoader's worker,
    `mp.spawn` or a process pool); otherwise `raised`.
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
    """A line of stderr without torch's prefix `[rank0]: `."""
    return _TORCH_RANK.sub("", line)


def begins_traceback(line: str) -> bool:
    """Whether a traceback begins with this line. A progress bar, which ends without a line break, may precede it."""
    return line.rstrip().endswith(TRACEBACK)


def last_traceback(lines: Sequence[str]) -> Raised | None:
    """The last whole traceback in `lines`; None if there is none."""
    return next((exception for exception, _ in reversed(tracebacks(lines))), None)


def tracebacks(lines: Sequence[str]) -> list[tuple[Raised, int]]:
    """All whole tracebacks in `lines`, each with the index of the first line after its message.

    A SyntaxError of the program itself has a frame but no "Traceback" line.
    """
    exceptions: list[tuple[Raised, int]] = []
    frames: list[Frame] = []
    for index, line in enumerate(lines):
        if begins_traceback(line):
            frames = []
        elif frame := _FRAME.match(line):
            frames.append(Frame(frame["file"], int(frame["line"]), _function(frame["function"] or "")))
        elif frames and (match := _EXCEPTION.match(line)):
            rest = lines[index + 1 : index + 1 + _MORE_MESSAGE_LINES]
            later = [text.strip() for text in takewhile(lambda text: not is_noise(text), rest)]
            message = "\n".join([match["message"] or "", *later]).strip()
            exceptions.append((Raised(match["kind"], message, tuple(frames)), index + 1 + len(later)))
            frames = []
    return exceptions


def without_warnings(lines: Sequence[str]) -> list[str]:
    """Lines of stderr without the warnings of torch and Python, and without the line of code below a warning."""
    kept: list[str] = []
    warned = False
    for line in lines:
        code_of_warning = warned and line.startswith("  ")
        warned = _WARNING.search(line) is not None
        if not warned and not code_of_warning:
            kept.append(line)
    return kept


def is_noise(line: str) -> bool:
    """Whether a line after an exception's message is not part of the message."""
    return _AFTER_MESSAGE.search(line) is not None
