"""Reads the records of how a rank's Python processes ended, and finds the one that explains the end of the program.

A program may start others: torchrun and accelerate start ranks, a shell script or subprocess.run starts another script.
The launcher's exception only says that a child failed; the child's exception is the cause. All but `read` is pure.
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
"""Limit from a child's end to its launcher's: torchrun and accelerate send the other ranks SIGTERM and wait 30 s."""

ARGPARSE_CODE = 2
_NOTICED_SECONDS = 1.0
"""Limit from a child's end to the end of a program that checks its exit code."""


@dataclass(frozen=True, slots=True)
class PythonEnd:
    """How one Python process ended.

    how: one of python_end's constants. text: what sys.exit printed. frames: of the call of sys.exit or os._exit.
    raised: the exception that ended it, or that was being handled then. child: the exception of a child process that
    failed just before.
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
        """Whether it has a text or an exception, other than a launcher's about a failed child."""
        return bool(self.text) or (self.raised is not None and not self.launcher_failed)

    @property
    def launcher_failed(self) -> bool:
        """Whether the exception is a launcher's; the cause is then in a child."""
        return self.raised is not None and self.raised.is_launchers

    @property
    def is_echo(self) -> bool:
        """Whether the exception only says that a peer has gone."""
        return self.raised is not None and is_echo(self.raised.first_line)


@dataclass(frozen=True, slots=True)
class Ends:
    """All records of a rank. `hooked`: the process ids of the outermost Pythons that record their end."""

    records: tuple[PythonEnd, ...] = ()
    hooked: frozenset[int] = frozenset()

    def own(self, pid: int) -> PythonEnd | None:
        """The record of the program itself; None if it left none or is not Python."""
        return next((end for end in self.records if end.pid == pid), None)

    def explaining(self, pid: int, code: int, ended_at: float) -> PythonEnd | None:
        """The record that explains the end of the program `pid` with exit code `code`; None if none does."""
        own = self.own(pid)
        if own is None:
            own = self._last_of_shell(pid, code, ended_at) if pid not in self.hooked else None
            if own is None:
                # `raise SystemExit(code)` leaves no record, but a child may have left one.
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
        """The exception of a child process that failed less than _NOTICED_SECONDS before its parent `own` ended."""
        below = [
            end.raised
            for end in self.records
            if own.pid in end.parents and end.raised is not None and 0 <= own.when - end.when <= _NOTICED_SECONDS
        ]
        return below[-1] if below and below[-1] != own.raised else None

    def _last_of_shell(self, pid: int, code: int, ended_at: float) -> PythonEnd | None:
        """The last Python that a shell script ran, if the script ended with the same exit code."""
        pids = {end.pid for end in self.records}
        top = [
            end
            for end in self.records
            if not pids & {*end.parents} - {pid} and end.code == code and ended_at - end.when <= _LAUNCHER_SECONDS
        ]
        return max(top, key=lambda end: end.when, default=None)

    def _child(self, pid: int, code: int, ended_at: float) -> PythonEnd | None:
        """The first explaining record of the processes below `pid` that failed in its last minute. An echo is only
        chosen if there is nothing else.
        """
        below = [
            end
            for end in self.records
            if pid in end.parents and end.explains and -1.0 <= ended_at - end.when <= _LAUNCHER_SECONDS
        ]
        return min(below, key=lambda end: (end.is_echo, end.when), default=None)

    def launchers(self, record: PythonEnd) -> list[Raised]:
        """The launchers' exceptions of a program and its children: torchrun's names the rank that failed first."""
        return [
            end.raised
            for end in self.records
            if end.raised is not None and end.launcher_failed and (end.pid == record.pid or record.pid in end.parents)
        ]

    def refused_arguments(self, pid: int) -> PythonEnd | None:
        """The first process below `pid` that argparse ended: it prints the reason and calls sys.exit(2)."""
        below = (end for end in self.records if pid in end.parents and end.code == ARGPARSE_CODE and not end.explains)
        return next(below, None)

    def failed_children(self, pid: int) -> list[PythonEnd]:
        """The explaining records of other processes than `pid`, oldest first; for a program that ended with 0."""
        return sorted((end for end in self.records if end.pid != pid and end.explains), key=lambda end: end.when)


def read(folder: Path) -> Ends:
    """All records in a rank's folder. Unreadable ones are skipped, because the user's program may write there, too."""
    records = []
    hooked: set[int] = set()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            if path.name == python_end.HOOKED:
                hooked |= {int(pid) for pid in path.read_text("ascii").split()}
            elif path.name.isdigit():
                records.append(_read(path))
    return Ends(tuple(sorted(records, key=lambda end: end.when)), frozenset(hooked))


def _read(path: Path) -> PythonEnd:
    fields = ast.literal_eval(path.read_text("utf-8"))
    exception = fields["raised"]
    if exception is not None and str(exception["kind"]).startswith("argparse."):
        exception = None  # argparse has already printed it, with the program's name
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
