"""Why a job failed, in one sentence, from the rank that failed to /opt/ml/output/failure on every host.

A rank's wrapper makes a FailureReport of its program's end and leaves it in the host's run folder; the entry of each
host sends the cause among them to the leader, which picks the job's and sends it back. SageMaker shows the first 1024
characters of the file.
"""

import contextlib
import json
import os
import re
import signal
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from berth.contract.masking import mask_text
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.table import last_line_remedy, remedy
from berth.train.mpirun_refusals import refused_option

FAILURE_FILE_VARIABLE = "BERTH_FAILURE_FILE"
SHOWN_CHARACTERS = 1024
# Bounds of a report, also of one that comes over the network.
SENTENCE_CHARACTERS = 900
DETAIL_LINES = 30
LINE_CHARACTERS = 400
_WHO_CHARACTERS = 100
_MESSAGE_LINES = 10
_ROOM_BYTES = 8192

TRACEBACK = "Traceback (most recent call last):"
# torch puts it before each line of an exception once the process group has started (2.13).
_TORCH_RANK = re.compile(r"^\[rank\d+\]: ?")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
# What may stand behind an exception's text and is none of it: torch's and Open MPI's own lines, another exception.
_AFTER_MESSAGE = re.compile(
    r"^\s*$|^\[(?:rank\d+\]:\s*)?\[?[WEIF]\d|^\[[\w.-]+:\d+\]|^-{10,}|MPI_ABORT|Traceback \(most recent call last\)|"
    r"^(?:The above exception|During handling of the above|Exception ignored in|Error in )|^\S+Warning: |: \w+Warning: "
)
# Shared memory that is too small, in the words of NCCL ("Error while creating shared memory segment /dev/shm/nccl-…
# (size …)", newer ones with the reason, which may be another), of torch's data loader and of Python.
_LITTLE_SHM = re.compile(
    r"creating shared memory segment (?!.*error: (?!No space))|failed to extend /dev/shm|posix_fallocate failed|"
    r"No space left on device.*/dev/shm|unable to write to file </torch_|insufficient shared memory|"
    r"out of shared memory|killed by signal: Bus error",
    re.IGNORECASE,
)
# A full disk, in the words of the system, of Rust's libraries (safetensors) and of a quota.
_FULL_DISK = re.compile(r"No space left on device|StorageFull|Disk quota exceeded")
_MORE_DISK = (
    "a disk of this host is full: give the job a larger one (volume_size of the estimator), or write less to it"
)
# What Open MPI 4.1 says in MPI_Init where its folder for this job, in /tmp, takes no more.
_NO_ROOM_FOR_MPI = re.compile(r"PMIX ERROR: OUT-OF-RESOURCE")
# A shell script with Windows line ends, in the words of bash, of env, and of Python that it starts.
_WINDOWS_LINE_ENDS = re.compile(
    r"\$'\\r': command not found|unexpected token `\$'[^']*\\r'|\\r.: (?:\[Errno 2\] )?No such file or directory"
)
CONVERT_LINE_ENDS = "convert it with sed -i 's/\\r$//', or have your editor save it with LF"
_MORE_SHM = (
    "give the container more (docker run --shm-size 8g, or shm_size in the local session's container_config), or use "
    "no data loader workers"
)
# What a rank writes when its peer has gone: never the cause when another rank has something else to say.
_ECHO = re.compile(
    r"connection (?:was )?(?:closed by peer|reset by peer|refused)|socket closed|broken pipe|DistBackendError|"
    r"ncclRemoteError|ncclSystemError|remote process exited|MPI_ERR_|timed out waiting",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class FailureReport:
    """One failure.

    `code` is the exit code (1 to 255), `when` the time at which it showed (seconds since the epoch), `detail` the last
    lines on stderr, `echo` says that it only follows from another rank's or host's failure, `written` that the program
    left the sentence itself (`write_failure`), `signalled` that a signal ended the rank, whatever the code tells.
    """

    sentence: str
    code: int = 1
    host: str = ""
    rank: int | None = None
    detail: tuple[str, ...] = ()
    when: float = 0.0
    echo: bool = False
    written: bool = False
    signalled: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain types, for a file or the rendezvous."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "FailureReport":
        """Read what `to_json` wrote; it may come over the network, so types and lengths are forced."""
        rank = fields.get("rank")
        return cls(
            sentence=_one_line(str(fields.get("sentence", ""))),
            code=min(max(int(fields.get("code", 1)), 0), 255),
            host=str(fields.get("host", ""))[:255],
            rank=None if rank is None else int(rank),
            detail=tuple(str(line)[:LINE_CHARACTERS] for line in list(fields.get("detail", ()))[-DETAIL_LINES:]),
            when=float(fields.get("when", 0.0)),
            echo=bool(fields.get("echo", False)),
            written=bool(fields.get("written", False)),
            signalled=bool(fields.get("signalled", False)),
        )

    def text(self) -> str:
        """The failure file: the sentence, then who and with which code, then the last lines that still fit."""
        who = f"rank {self.rank} on {self.host}" if self.rank is not None else self.host
        lines = [
            _one_line(mask_text(self.sentence)),
            f"{who}, exit code {self.code}" if who else f"exit code {self.code}",
        ]
        left = SHOWN_CHARACTERS - sum(len(line) + 1 for line in lines)
        kept: list[str] = []
        for line in map(mask_text, reversed(self.detail)):
            left -= len(line) + 1
            if left < 0:
                break
            kept.append(line)
        return "\n".join([*lines, *reversed(kept)]) + "\n"


def _one_line(text: str, most: int = SENTENCE_CHARACTERS) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def write_failure(sentence: str) -> bool:
    """For a program under our entry: leave the sentence that is to stand first in /opt/ml/output/failure, then exit
    non-zero. The entry of each host says it in the log.

    Outside the training image (no BERTH_FAILURE_FILE) nothing is written; returns False.
    """
    path = os.environ.get(FAILURE_FILE_VARIABLE)
    if path:
        Path(path).write_text(sentence, encoding="utf-8")
    return bool(path)


def is_echo(text: str) -> bool:
    """Whether an exception's text only says that a peer has gone."""
    return _ECHO.search(text) is not None


def cause(reports: Iterable[FailureReport]) -> FailureReport | None:
    """The report that explains the others: the earliest that is no echo, else the earliest."""
    return min(reports, key=lambda report: (report.echo, report.when), default=None)


def exit_code(code: int) -> int:
    """What the shell makes of a subprocess' return code: 128 + n for signal n."""
    return 128 - code if code < 0 else code


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG99 for a number that has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def without_rank(line: str) -> str:
    """A line of stderr without the `[rank0]: ` that torch puts before those of an exception."""
    return _TORCH_RANK.sub("", line)


def exception_sentence(lines: Sequence[str], code_dir: str, *, whole: bool = True) -> str | None:
    """`ValueError: no rows (raised at train.py:12 in main)` from the last traceback in `lines`; None if there is none.

    The place is the last frame in the user's code (under `code_dir`), else the last outside installed packages, else
    the last. An exception of the kit's own is a whole sentence already and stands without type and place. `whole`: with
    the later lines of its message.
    """
    frames: list[tuple[str, str, str | None]] = []
    inside = False
    found: str | None = None
    for index, line in enumerate(lines):
        if line.strip() == TRACEBACK:
            frames, inside = [], True
        elif frame := _FRAME.match(line):
            # A SyntaxError in the program itself has a frame but no "Traceback" line above it.
            if not inside:
                frames, inside = [], True
            frames.append((frame["file"], frame["line"], frame["function"]))
        elif inside and frames and (match := _EXCEPTION.match(line)):
            later = _later_lines(lines[index + 1 :]) if whole else []
            found = _place(match["type"], " ".join([match["message"] or "", *later]).strip(), frames, code_dir)
            inside = False
    return found


def _later_lines(lines: Sequence[str]) -> list[str]:
    """The lines of an exception's message after its first."""
    later: list[str] = []
    for line in lines[:_MESSAGE_LINES]:
        if _AFTER_MESSAGE.search(line):
            break
        later.append(line.strip())
    return later


def _place(kind: str, message: str, frames: Sequence[tuple[str, str, str | None]], code_dir: str) -> str:
    if kind.startswith("berth.") and message:
        return _one_line(message)
    if kind.startswith("smdistributed."):  # a path of five names that no script writes
        kind = kind.rpartition(".")[2]
    # Under mpi4py's runner the program has the relative name by which it was started.
    own = [frame for frame in frames if frame[0].startswith(f"{code_dir.rstrip('/')}/") or frame[0][0] not in "/<"]
    outside = [frame for frame in frames if "/site-packages/" not in frame[0] and not frame[0].startswith("<")]
    file, line, function = (own or outside or list(frames))[-1]
    shown = os.path.relpath(file, code_dir) if own and file.startswith("/") else file
    where = f" (raised at {shown}:{line}" + (f" in {function})" if function and function != "<module>" else ")")
    raised = RaisedException(kind, message, [frame[0] for frame in frames])
    where += remedy(raised, ProgramContext(Path(code_dir)))
    most = SENTENCE_CHARACTERS - len(where) - _WHO_CHARACTERS
    return _one_line(f"{kind}: {message}" if message else kind, most) + where


def bus_error_sentence(who: str) -> str:
    """A death by SIGBUS: a page of a mapped file could not be had, and the files that ranks map lie in /dev/shm."""
    return f"{who} was killed by SIGBUS: /dev/shm is probably full; {_MORE_SHM}."


def ending_sentence(program: str, code: int, lines: Sequence[str], code_dir: str, *, whole: bool = True) -> str:
    """The cause of a program's non-zero `code` (not a signal) as far as its stderr tells. It does not say the code,
    which stands behind it wherever the sentence is shown.
    """
    if code == exit_code(-signal.SIGBUS):  # as a shell tells of what it ran
        return bus_error_sentence(program)
    sentence = exception_sentence(lines, code_dir, whole=whole)
    short = next((line for line in reversed(lines) if _LITTLE_SHM.search(line)), None)
    # An exception that tells of neither memory nor peers is the cause, whatever was written before it.
    if short and (not sentence or _LITTLE_SHM.search(sentence) or _ECHO.search(sentence)):
        return _one_line(f"/dev/shm is too small for {program}: {_MORE_SHM} (its message: {short.strip()[:200]}).")
    if sentence:
        return f"{sentence}; {_MORE_DISK}" if _FULL_DISK.search(sentence) else sentence
    if any(map(_WINDOWS_LINE_ENDS.search, lines)):
        return f"{program} failed, for a script that it runs has Windows line ends (CRLF): {CONVERT_LINE_ENDS}."
    if any(map(_NO_ROOM_FOR_MPI.search, lines)):
        return f"{program} could not start under mpirun, whose files lie in {tempfile.gettempdir()}: {_MORE_DISK}"
    last = next((line.strip() for line in reversed(lines) if line.strip()), None)
    if last is None:
        return f"{program} failed and wrote nothing to stderr; print the reason there before exiting."
    hint = last_line_remedy(last, ProgramContext(Path(code_dir)))
    most = SENTENCE_CHARACTERS - _WHO_CHARACTERS - len(hint)
    return _one_line(f"{program} failed; its last line on stderr was: {last}", most) + hint


def stopped_sentence(number: int, *, begun: bool = True, overdue: float = 0.0) -> str:
    """The end of a job whose hosts were sent a signal. No host or rank is named: none of them is the cause.

    overdue: the seconds that its programs had to end, where they did not.
    """
    when = "it was done" if begun else "training began; start it again"
    late = f", and was ended after {overdue:.0f} s, for its program went on: let it save and end" if overdue else ""
    return f"the job was stopped by a signal ({signal_name(number)}) before {when}{late}."


def launcher_sentence(code: int, lines: Sequence[str]) -> str:
    """The cause when mpirun failed and no rank left a report: its own words, without the frame of dashes."""
    for line in lines:
        if match := re.search(r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)", line):
            if int(match[3]) == signal.SIGBUS:
                return bus_error_sentence(f"rank {match[1]} on {match[2]}")
            return (
                f"rank {match[1]} on {match[2]} was killed by {signal_name(int(match[3]))}; look for the reason in "
                "that host's log."
            )
    if refusal := refused_option(lines):
        return refusal
    output = [line.strip() for line in lines if line.strip() and not set(line.strip()) <= {"-", "="}]
    words = (
        " ".join(output[:4])
        if output
        else "it wrote nothing; run the job again with fewer hosts to see which one fails"
    )
    return _one_line(f"mpirun ended with exit code {code} before any rank reported a failure: {words}")


def load_reports(folder: Path) -> list[FailureReport]:
    """All reports that this host's ranks left; a half-written one cannot be there (they are renamed into place)."""
    return [FailureReport.from_json(json.loads(path.read_text("utf-8"))) for path in sorted(folder.glob("rank-*.json"))]


def save_report(folder: Path, report: FailureReport) -> None:
    """Leave the report of one rank for this host's entry."""
    target = folder / f"rank-{report.rank or 0}.json"
    part = target.with_suffix(".part")
    part.write_text(json.dumps(trimmed(report).to_json()), "utf-8")
    part.rename(target)


def trimmed(report: FailureReport) -> FailureReport:
    """The same report within the lengths that the rendezvous carries."""
    return replace(report, sentence=_one_line(report.sentence), detail=FailureReport.from_json(report.to_json()).detail)


class FailureFile:
    """/opt/ml/output/failure, which a user's program may write itself: what it wrote during this run stays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = self._stamp()
        self._room = path.with_name(".room-for-failure")

    def keep_room(self) -> None:
        """Take the room that the report will need, for the job may fail because its disk is full."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._room.write_bytes(bytes(_ROOM_BYTES))

    def give_up_room(self) -> None:
        """At the job's end."""
        with contextlib.suppress(OSError):
            self._room.unlink(missing_ok=True)

    def _stamp(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def write(self, report: FailureReport) -> bool:
        """Write the report; False if the program has written its own reason."""
        stamp = self._stamp()
        if stamp is not None and stamp != self._before and stamp[1] > 0:
            return False
        self.give_up_room()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(report.text(), "utf-8")
        return True
