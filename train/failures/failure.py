"""The report of a failure, in one sentence, from the rank that failed to /opt/ml/output/failure on every host.

The wrapper of a failed rank writes a FailureReport to the host's run folder. Each host's launcher sends the cause among
its reports to the leader. The leader chooses the cause of the job and sends it back to all hosts. SageMaker shows the
first 1024 characters of the file.
"""

import contextlib
import dataclasses
import json
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from berth.contract.masking import mask_text
from berth.runtime import whole_files
from berth.runtime.codes import signal_name
from berth.runtime.failure_file import SENTENCE_CHARACTERS
from berth.train.failures.echo import is_echo
from berth.train.failures.mpirun_refusals import refused_option
from berth.train.failures.native import bus_error_sentence
from berth.train.failures.sentence import one_line

SHOWN_CHARACTERS = 1024
# Limits of a report, together with SENTENCE_CHARACTERS; also of one that was received over the network.
DETAIL_LINES = 30
LINE_CHARACTERS = 400
_ROOM_BYTES = 8192


@dataclass(frozen=True, slots=True)
class FailureReport:
    """One failure.

    code: the exit code (1 to 255). when: it happened, in seconds since the epoch. detail: the last lines on stderr.
    echo: it only follows from another rank's or host's failure. written: the program itself wrote the sentence
    (`write_failure`). signalled: a signal ended the rank, even if `code` says otherwise.
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

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "FailureReport":
        """A report from the fields in a file or in a message of the rendezvous, cut to the limits above."""
        known = {field.name: fields[field.name] for field in dataclasses.fields(cls) if field.name in fields}
        lines = tuple(str(line)[:LINE_CHARACTERS] for line in list(fields["detail"])[-DETAIL_LINES:])
        return cls(**{**known, "sentence": one_line(str(fields["sentence"])), "detail": lines})

    def to_fields(self) -> dict[str, Any]:
        """The report's fields, cut to the limits above."""
        return dataclasses.asdict(FailureReport.from_fields(dataclasses.asdict(self)))

    def text(self) -> str:
        """The text of the failure file: the sentence, the rank and exit code, and the last stderr lines that fit."""
        who = f"rank {self.rank} on {self.host}" if self.rank is not None else self.host
        lines = [
            one_line(mask_text(self.sentence)),
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


def cause(reports: Iterable[FailureReport]) -> FailureReport | None:
    """The report that explains the others: the earliest that is not an echo, else the earliest."""
    return min(reports, key=lambda report: (report.echo, report.when), default=None)


def with_lone_echo_explained(report: FailureReport) -> FailureReport:
    """Add an explanation if the job's only failure is an echo: the peer has ended, but without a failure."""
    if not is_echo(report.sentence):
        return report
    hint = (
        "; no rank reported another reason: one may have ended earlier, after fewer steps; give all ranks the same "
        "number of steps (drop_last, or a DistributedSampler)"
    )
    most = SENTENCE_CHARACTERS - len(hint)
    return replace(report, sentence=one_line(report.sentence, most) + hint)


def stopped_sentence(number: int, *, started: bool = True, overdue: float = 0.0) -> str:
    """The sentence for a job that was stopped by a signal. It names no host or rank, because none of them is the cause.

    started: whether training had started. overdue: seconds after which its programs were killed; 0 if they ended in
    time.
    """
    when = "it was done" if started else "training began; start it again"
    late = (
        f", and was killed after {overdue:.0f} s because its program did not end: let it save and end"
        if overdue
        else ""
    )
    return f"the job was stopped by a signal ({signal_name(number)}) before {when}{late}."


def launcher_sentence(code: int, lines: Sequence[str]) -> str:
    """The sentence if mpirun failed and no rank left a report: mpirun's message, without its lines of dashes."""
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
    return one_line(f"mpirun ended with exit code {code} before any rank reported a failure: {words}")


def save_report(folder: Path, report: FailureReport) -> None:
    """Write the report of one rank for this host's launcher."""
    whole_files.write(folder / f"rank-{report.rank or 0}.json", json.dumps(report.to_fields()))


class FailureFile:
    """/opt/ml/output/failure. The user's program may write it itself; then it is not overwritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._before = self._stamp()
        self._room = path.with_name(".room-for-failure")

    def keep_room(self) -> None:
        """Reserve disk space for the report: the job may fail because the disk is full."""
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._room.write_bytes(bytes(_ROOM_BYTES))

    def give_up_room(self) -> None:
        """Free the reserved disk space."""
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
        self.path.write_text(report.text(), "utf-8", "backslashreplace")  # a file's name may not be valid UTF-8
        return True
