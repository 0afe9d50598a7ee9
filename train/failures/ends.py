"""The records that a rank's Pythons left of their ends, and the one that the rank's own end belongs to. Reading apart,
pure.

A program may start others: torchrun and accelerate start ranks, a shell script or subprocess.run another script. The
exception of the launcher only says that a child failed; the child's own is the cause.
"""

import ast
import contextlib
from dataclasses import dataclass, replace
from pathlib import Path

from berth.train.failures import raised
from berth.train.failures.echo import is_echo
from berth.train.failures.raised import Frame, Raised
from berth.train.startup import python_end

_LAUNCHER_SECONDS = 60.0
"""From a child's end to its launcher's: torchrun and accelerate ask the other ranks to end, and wait 30 s for them."""

ARGPARSE_CODE = 2
_NOTICED_SECONDS = 1.0
"""From a child's end to that of a program that looks at its exit code."""


@dataclass(frozen=True, slots=True)
class PythonEnd:
    """How one Python ended.

    `how` is one of `python_end`, `code` the exit code, `text` what sys.exit printed, `frames` those of the call that
    ended it. `raised` is the exception that ended it, or was being handled there.
    """

    pid: int
    parents: tuple[int, ...]
    when: float
    how: str
    code: int
    text: str = ""
    rank: str = ""
    program: str = ""
    frames: tuple[Frame, ...] = ()
    raised: Raised | None = None
    child: "Raised | None" = None

    @property
    def explains(self) -> bool:
        """Whether it says more than that a child failed, or a number."""
        return bool(self.text) or (self.raised is not None and not self.launcher_failed)

    @property
    def launcher_failed(self) -> bool:
        """Whether the exception is a launcher's, whose child has the cause."""
        return self.raised is not None and self.raised.is_launchers

    @property
    def is_echo(self) -> bool:
        """Whether it only says that a peer has gone."""
        return self.raised is not None and is_echo(self.raised.first_line)


@dataclass(frozen=True, slots=True)
class Ends:
    """All records of a rank, and the process ids of the outermost Pythons that keep records."""

    records: tuple[PythonEnd, ...] = ()
    hooked: frozenset[int] = frozenset()

    def own(self, pid: int) -> PythonEnd | None:
        """The record of the program itself, None if it left none or is no Python."""
        return next((end for end in self.records if end.pid == pid), None)

    def cause(self, pid: int, code: int, ended_at: float) -> PythonEnd | None:
        """The record that explains the end of the program `pid` with exit code `code`; None if none does."""
        own = self.own(pid)
        if own is None:
            own = self._last_of_shell(pid, code, ended_at) if pid not in self.hooked else None
            if own is None:
                # `raise SystemExit(code)` leaves no record, and its child may have one.
                return self._child(pid, code, ended_at) if pid in self.hooked else None
        if own.launcher_failed or not own.explains:
            child = self._child(own.pid, own.code, own.when)
            return own if child is None else child
        if own.raised is not None and own.raised.behind is not None and own.raised.behind.is_launchers:
            child = self._child(own.pid, own.code, own.when)
            if child is not None and child.raised is not None:
                return replace(own, raised=replace(own.raised, behind=child.raised, caused=True))
        return replace(own, child=self._just_failed(own))

    def _just_failed(self, own: PythonEnd) -> Raised | None:
        """The exception of a process that failed shortly before a program that it belongs to ended in its own words."""
        below = [
            end.raised
            for end in self.records
            if own.pid in end.parents and end.raised is not None and 0 <= own.when - end.when <= _NOTICED_SECONDS
        ]
        return below[-1] if below and below[-1] != own.raised else None

    def _last_of_shell(self, pid: int, code: int, ended_at: float) -> PythonEnd | None:
        """The last Python that a shell script ran, if the script ended with its exit code."""
        pids = {end.pid for end in self.records}
        top = [
            end
            for end in self.records
            if not pids & {*end.parents} - {pid} and end.code == code and ended_at - end.when <= _LAUNCHER_SECONDS
        ]
        return max(top, key=lambda end: end.when, default=None)

    def _child(self, pid: int, code: int, ended_at: float) -> PythonEnd | None:
        """Of the processes below `pid` that failed in its last minute, the first that says why, an echo only where
        nothing else does.
        """
        below = [
            end
            for end in self.records
            if pid in end.parents and end.explains and -1.0 <= ended_at - end.when <= _LAUNCHER_SECONDS
        ]
        return min(below, key=lambda end: (end.is_echo, end.when), default=None)

    def launchers(self, record: PythonEnd) -> list[Raised]:
        """The launchers' exceptions of a program and of those below it: torchrun's says which rank ended how."""
        return [
            end.raised
            for end in self.records
            if end.raised is not None and end.launcher_failed and (end.pid == record.pid or record.pid in end.parents)
        ]

    def refused_arguments(self, pid: int) -> PythonEnd | None:
        """The first process below `pid` that argparse ended: it prints why, and ends by sys.exit(2)."""
        below = (end for end in self.records if pid in end.parents and end.code == ARGPARSE_CODE and not end.explains)
        return next(below, None)

    def failed_children(self, pid: int) -> list[PythonEnd]:
        """The processes below a program that ended with 0 although they failed and say why."""
        return sorted((end for end in self.records if end.pid != pid and end.explains), key=lambda end: end.when)


def read(folder: Path) -> Ends:
    """All records in a rank's folder. One that can't be read is left out: a program may write there."""
    found = []
    hooked: set[int] = set()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            if path.name == python_end.HOOKED:
                hooked |= {int(pid) for pid in path.read_text("ascii").split()}
            elif path.name.isdigit():
                found.append(_read(path))
    return Ends(tuple(sorted(found, key=lambda end: end.when)), frozenset(hooked))


def _read(path: Path) -> PythonEnd:
    fields = ast.literal_eval(path.read_text("utf-8"))
    exception = fields["raised"]
    if exception is not None and str(exception["kind"]).startswith("argparse."):
        exception = None  # argparse has printed it, with the name of the program, and ends by sys.exit
    return PythonEnd(
        pid=int(fields["pid"]),
        parents=tuple(int(pid) for pid in fields["parents"]),
        when=float(fields["when"]),
        how=str(fields["how"]),
        code=int(fields["code"]),
        text=str(fields["text"]),
        rank=str(fields["rank"]),
        program=str(fields["program"]),
        frames=raised.read_frames(fields["frames"]),
        raised=None if exception is None else raised.innermost(Raised.from_record(exception)),
    )
