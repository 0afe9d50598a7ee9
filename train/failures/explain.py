"""Decides what ended a program, from the records of its Python processes, or from stderr if there is none. Pure."""

import re
import signal
import tempfile
from dataclasses import dataclass

from berth.runtime.codes import exit_code
from berth.runtime.failure_file import SENTENCE_CHARACTERS
from berth.runtime.hints.program import ProgramContext
from berth.runtime.hints.table import last_line_remedy
from berth.train.failures.echo import is_echo
from berth.train.failures.ends import Ends, PythonEnd
from berth.train.failures.native import (
    MORE_SHM,
    STOPS,
    hang_sentence,
    killed_sentence,
    lost_process_sentence,
    unasked_stop_sentence,
)
from berth.train.failures.raised import Raised, killed_rank
from berth.train.failures.sentence import MORE_DISK, WHO_CHARACTERS, exception_sentence, one_line, place
from berth.train.failures.stderr_text import StderrText
from berth.train.startup.python_end import EXIT, RAISED

PYTHON_ERROR_EXIT = 1
"""Exit code of a Python program that raised; also used if a signal killed it during shutdown."""
_DYING_SECONDS = 3.0
"""Limit from a printed traceback to a death by signal that it explains: mpi4py first asks mpirun to end all ranks."""
_HANDLED_SECONDS = 1.0
"""Limit from a printed traceback to `raise SystemExit(code)` in the same except block."""
_SHELL_SECONDS = 1.0
"""If a shell script writes later than this after the end of its last Python, another command wrote it."""
_MOST = SENTENCE_CHARACTERS - WHO_CHARACTERS
# Messages about too little shared memory: NCCL's ("Error while creating shared memory segment /dev/shm/nccl-… (size
# …)"; newer versions add the reason, which may be a different one), the data loader's of torch, and Python's.
_LITTLE_SHM = re.compile(
    r"creating shared memory segment (?!.*error: (?!No space))|failed to extend /dev/shm|posix_fallocate failed|"
    r"No space left on device.*/dev/shm|unable to write to file </torch_|insufficient shared memory|"
    r"out of shared memory|killed by signal: Bus error",
    re.IGNORECASE,
)
# Message of Open MPI 4.1 in MPI_Init if the disk of its folder for this job, in /tmp, is full.
_NO_ROOM_FOR_MPI = re.compile(r"PMIX ERROR: OUT-OF-RESOURCE")
# Messages about a shell script with Windows line ends: of bash, of env, and of a Python that it starts.
_WINDOWS_LINE_ENDS = re.compile(
    r"\$'\\r': command not found|unexpected token `\$'[^']*\\r'|\\r.: (?:\[Errno 2\] )?No such file or directory"
)
_SIGNALS = frozenset(signal.Signals)
_ARGPARSE_ERROR = re.compile(r"\S+: error: ")
_SHELL_CODES = {
    124: "a command that it ran with `timeout` took too long",
    126: "a command that it ran is not executable",
    127: "a command that it ran was not found",
}
CONVERT_LINE_ENDS = "convert it with sed -i 's/\\r$//', or have your editor save it with LF"


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """A failed program.

    who: the rank or the program, and the host. code: Popen's return code, negative for a signal. signalled_at: when the
    wrapper forwarded the first signal, 0 if it got none. stdout_last: the last line on stdout, and when it came.
    killed_for_memory: the OOM killer killed a process of this container meanwhile. Times are seconds since the epoch.
    """

    name: str
    who: str
    pid: int
    code: int
    ended_at: float
    ends: Ends
    stderr: StderrText
    context: ProgramContext
    signalled_at: float = 0.0
    stdout_last: tuple[str, float] = ("", 0.0)
    killed_for_memory: bool = False

    @property
    def shell_code(self) -> int:
        """The exit code as a shell reports it: 128 plus the number of a signal."""
        return exit_code(self.code)

    @property
    def hooked(self) -> bool:
        """Whether the program is a Python process that records its end."""
        return self.pid in self.ends.hooked


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cause of a failure. `when`: it happened. `code`: to report. `echo`: it only follows from another failure."""

    sentence: str
    when: float
    code: int
    echo: bool


def explain(end: ProgramEnd) -> Explanation:
    """Returns the cause of the program's failure."""
    record = _record(end)
    printed = None if record is not None or end.hooked else end.stderr.ending_traceback()
    if printed is not None and end.ends.hooked and "\n" in printed[0].message:
        printed = None  # a Python handled this exception; the lines after its first come from the shell's next command
    if end.code < 0 and not _was_ending(end, record, printed):
        sentence = killed_sentence(
            end.who, -end.code, end.stderr.detail, end.context, killed_for_memory=end.killed_for_memory
        )
        if -end.code in STOPS and not end.signalled_at and not end.killed_for_memory:
            sentence = unasked_stop_sentence(end.who, -end.code)
        return Explanation(sentence, end.ended_at, end.shell_code, echo=end.signalled_at > 0)
    code = PYTHON_ERROR_EXIT if end.code < 0 else end.code
    if record is not None and record.explains:
        sentence, first = _recorded(record, end), record.raised.first_line if record.raised else ""
        when = record.when
    elif printed is not None and not (record is not None and record.raised is not None):
        sentence, first = exception_sentence(printed[0], end.context), printed[0].first_line
        when = printed[1] if end.code < 0 or end.code == PYTHON_ERROR_EXIT else end.ended_at
    else:
        sentence, first = _without_cause(record, end)
        when = record.when if record is not None and record.how == RAISED else end.ended_at
    if record is None or not record.text:
        sentence = _known_cause(sentence, first, end)
    return Explanation(sentence, when, code, echo=0.0 < end.signalled_at <= when or is_echo(first))


def _record(end: ProgramEnd) -> PythonEnd | None:
    """The record that explains the end; None if a shell script has run another command since its last Python failed."""
    record = end.ends.explaining(end.pid, end.shell_code, end.ended_at)
    if record is None or end.hooked or record.pid == end.pid or not end.stderr.lines:
        return record
    went_on = end.stderr.lines[-1][1] - record.when > _SHELL_SECONDS and end.stderr.ending_traceback() is None
    return None if went_on else record


def _was_ending(end: ProgramEnd, record: PythonEnd | None, printed: tuple[Raised, float] | None) -> bool:
    """Whether the program was already ending because of an exception when the signal killed it."""
    if end.killed_for_memory:
        return False
    if record is not None:
        return record.pid == end.pid and record.explains and not 0.0 < end.signalled_at < record.when
    if printed is None:
        return False
    return end.ended_at - printed[1] < _DYING_SECONDS and not 0.0 < end.signalled_at < printed[1]


def _recorded(record: PythonEnd, end: ProgramEnd) -> str:
    """The sentence for a record with a text or an exception."""
    if record.text:
        details = _call(record, end) + _child(record, end)
        name = end.name if record.pid == end.pid else record.program or end.name
        return one_line(f"{name} ended itself: {record.text}", _MOST - len(details)) + details
    assert record.raised is not None, "a record that explains has a text or an exception"
    is_own_rank = record.pid == end.pid or record.rank == end.context.environ.get("RANK")
    rank = f", in rank {record.rank}" if record.rank and not is_own_rank else ""
    child = _child(record, end)
    return one_line(exception_sentence(record.raised, end.context), _MOST - len(child)) + child + rank


def _child(record: PythonEnd, end: ProgramEnd) -> str:
    """The exception of a child process that failed just before the program ended with a text; empty if none did."""
    if record.child is None:
        return ""
    return (
        f", after a process that it started had failed: {one_line(exception_sentence(record.child, end.context), 300)}"
    )


def _call(record: PythonEnd | None, end: ProgramEnd) -> str:
    """` (sys.exit at train.py:12)`: the call that ended a program which did not raise; empty if it is unknown."""
    called = place(record.frames, end.context) if record is not None else ""
    return f" ({record.how} at {called})" if record is not None and called else ""


def _without_cause(record: PythonEnd | None, end: ProgramEnd) -> tuple[str, str]:
    """The sentence for a program that ended with only an exit code, and the first line of the exception in it."""
    if record is not None and record.raised is not None:  # a launcher's, whose child left no reason
        return _lost_child(record, record.raised, end)
    if record is None and end.hooked:
        printed = end.stderr.ending_traceback()
        if printed is not None and end.ended_at - end.stderr.lines[-1][1] < _HANDLED_SECONDS:
            return exception_sentence(printed[0], end.context), printed[0].first_line
    return _last_words(record, end), ""


def _lost_child(record: PythonEnd, raised: Raised, end: ProgramEnd) -> tuple[str, str]:
    """The sentence for a launcher whose child raised no exception: argparse refused its arguments, a signal killed it,
    or it is not Python.
    """
    child = end.ends.refused_arguments(record.pid)
    message = next((line.strip() for line in reversed(end.stderr.detail) if _ARGPARSE_ERROR.match(line.strip())), "")
    if child is not None and message:
        hint = last_line_remedy(message, end.context)
        return one_line(f"{child.program or end.name} failed; its last line on stderr was: {message}") + hint, ""
    if killed := killed_rank(end.ends.launchers(record)):
        rank, number = killed
        who = f"rank {rank}, which {end.name} started,"
        return killed_sentence(who, number, killed_for_memory=end.killed_for_memory), ""
    printed = end.stderr.ending_traceback()
    raised = printed[0] if printed is not None and not printed[0].is_launchers else raised
    return exception_sentence(raised, end.context), raised.first_line


def _last_words(record: PythonEnd | None, end: ProgramEnd) -> str:
    """The sentence with the last lines on stderr, or else on stdout."""
    call = _call(record, end)
    if hang := hang_sentence(end.name, end.stderr.detail, end.context):
        return hang
    handled = record is not None and end.stderr.ending_traceback() is not None
    words = [] if handled else end.stderr.closing_lines()
    if not words:
        if printed := _printed_last(record, end):
            return one_line(f"{end.name} failed; its last line on stdout was: {printed}", _MOST - len(call)) + call
        silence = "gave no reason" if handled or end.stderr.lines else "wrote nothing to stderr"
        if (meaning := _SHELL_CODES.get(end.code)) is not None and not end.hooked:
            return f"{end.name} failed with exit code {end.code} and {silence}: {meaning}."
        return f"{end.name} failed and {silence}{call}; print the reason to stderr before exiting."
    if ": error: " in words[-1]:
        words = words[-1:]
    hint = last_line_remedy(words[-1], end.context)
    label = "last line on stderr was" if len(words) == 1 else "last lines on stderr were"
    return one_line(f"{end.name} failed; its {label}: {' '.join(words)}", _MOST - len(call) - len(hint)) + call + hint


def _printed_last(record: PythonEnd | None, end: ProgramEnd) -> str:
    """The line that the program wrote to stdout just before it called sys.exit with a number; empty if none."""
    line, when = end.stdout_last
    soon = record is not None and record.how == EXIT and abs(record.when - when) < _HANDLED_SECONDS
    return line.strip() if soon else ""


def _known_cause(sentence: str, first: str, end: ProgramEnd) -> str:
    """A more precise sentence if stderr or the exit code shows a known cause; otherwise `sentence`.

    first: the first line of the program's exception, if any.
    """
    lines = end.stderr.detail
    if end.killed_for_memory:
        # The counter is that of all ranks on this host, so it explains only an exception about a lost process.
        lost = lost_process_sentence(end.name, first or "\n".join(lines[-3:]))
        if lost is not None:
            return lost
    number = end.code - 128
    if not (first or end.hooked) and number not in STOPS and number in _SIGNALS:  # a shell's code for a killed command
        who = f"a program that {end.name} ran"
        return killed_sentence(who, number, lines, end.context, killed_for_memory=end.killed_for_memory)
    short = next((line for line in reversed(lines) if _LITTLE_SHM.search(line)), None)
    # If the exception mentions neither shared memory nor a peer, it is the cause, whatever was written before it.
    if short and (not first or _LITTLE_SHM.search(first) or is_echo(first)):
        return one_line(f"/dev/shm is too small for {end.name}: {MORE_SHM} (its message: {short.strip()[:200]}).")
    if first:
        return sentence
    if any(map(_WINDOWS_LINE_ENDS.search, lines)):
        return f"{end.name} failed because a script that it runs has Windows line ends (CRLF): {CONVERT_LINE_ENDS}."
    if any(map(_NO_ROOM_FOR_MPI.search, lines)):
        return f"{end.name} could not start under mpirun, whose files are in {tempfile.gettempdir()}: {MORE_DISK}"
    return sentence
