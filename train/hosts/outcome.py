"""How a job ended, and what this host does then: writes the last log lines and the failure file, and makes the outputs
readable for their owner.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.runtime import whole_files
from berth.train.failures import failure
from berth.train.failures.failure import FailureFile, FailureReport
from berth.train.hosts.log import get_logger
from berth.train.hosts.output_sizes import checkpoints_warning
from berth.train.hosts.ownership import hand_over, open_to_readers


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the job ended, the same on every host, or how one host's part of it ended.

    report: None only for code 0. leaves_model: whether the model folder of any host, or of that one, contains a file.
    """

    code: int
    report: FailureReport | None = None
    leaves_model: bool = True


def failed(sentence: str, host: str, code: int = 1) -> Outcome:
    """The outcome of a failure that no rank reported."""
    return Outcome(code, FailureReport(sentence=sentence, code=code, host=host, when=time.time()))


def stopped(number: int, *, started: bool = False, code: int = 0, overdue: float = 0.0) -> Outcome:
    """The outcome of a stopped job. It names no host, because none caused the failure."""
    return failed(failure.stopped_sentence(number, started=started, overdue=overdue), "", code or 128 + number)


def finish(outcome: Outcome, failure_file: FailureFile, root: Path, notes: Sequence[str] = ()) -> None:
    """Report the outcome in the log and in the failure file, and hand over the outputs.

    notes: warnings that the user must not miss; they go into the last line of the log.
    """
    if outcome.code and outcome.report is not None:
        get_logger().error("failed: %s", outcome.report.sentence)
        try:
            if not failure_file.write(outcome.report):
                get_logger().info("kept %s, which the program wrote", failure_file.path)
        except OSError as error:
            get_logger().error("%s can't be written (%s)", failure_file.path, error.strerror)
    failure_file.give_up_room()
    for name in ("model", "output"):
        whole_files.remove_leftovers(root / name)  # of a rank that was killed
    if warning := checkpoints_warning(root):
        get_logger().warning("warning: %s", warning)
    open_to_readers(root / "model")
    owner = hand_over(root)
    if owner is not None:
        get_logger().info("outputs: handed to the owner of the mounted folders, uid %d", owner)
    get_logger().info("%s", "; ".join([f"the job ends with exit code {outcome.code}", *notes]))


def outcome_fields(outcome: Outcome, now: float) -> dict[str, Any]:
    """The fields of an outcome's message. It says how long before `now` the failure showed, not at what time.

    It has only one report: those of all ranks of a host might not fit into a message.
    """
    report = outcome.report
    fields = report and {**report.to_fields(), "age": max(0.0, now - report.when)}
    return {"code": outcome.code, "report": fields, "leaves_model": outcome.leaves_model}


def read_outcome(fields: Mapping[str, Any], now: float) -> Outcome:
    """Read the fields that `outcome_fields` wrote, with times by this host's clock, which now shows `now`.

    Clocks of two hosts may be minutes apart; with them, the wrong one of two failures could count as the first.
    """
    report = fields["report"]
    report = report and FailureReport.from_fields({**report, "when": now - report["age"]})
    return Outcome(fields["code"], report, fields["leaves_model"])
