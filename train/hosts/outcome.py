"""How a job ended, on every host, and what this host leaves of it: the log's last lines, the failure file, and outputs
that their owner can read.
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
from berth.train.hosts.output_sizes import checkpoints_warning, sizes_line
from berth.train.hosts.ownership import hand_over, open_to_readers


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the job ended on every host (`report` is None only for code 0), or how one host's part of it did.

    leaves_model: whether there is a file in the model folder of any host, or of that one.
    """

    code: int
    report: FailureReport | None = None
    leaves_model: bool = True


def failed(sentence: str, host: str, code: int = 1) -> Outcome:
    """An outcome that no rank reported."""
    return Outcome(code, FailureReport(sentence=sentence, code=code, host=host, when=time.time()))


def stopped(number: int, *, begun: bool = False, code: int = 0, overdue: float = 0.0) -> Outcome:
    """An outcome for a host that was told to stop, the same on every host: none of them is to blame."""
    return failed(failure.stopped_sentence(number, begun=begun, overdue=overdue), "", code or 128 + number)


def finish(outcome: Outcome, failure_file: FailureFile, root: Path, notes: Sequence[str] = ()) -> None:
    """Say how the job ended, in the log and in the failure file, and hand the outputs over. `notes`: what the user must
    not miss, for the log's last line.
    """
    if outcome.code and outcome.report is not None:
        get_logger().error("failed: %s", outcome.report.sentence)
        try:
            if not failure_file.write(outcome.report):
                get_logger().info("the program wrote its own %s; it stays as it is", failure_file.path)
        except OSError as error:
            get_logger().error("%s can't be written (%s)", failure_file.path, error.strerror)
    failure_file.give_up_room()
    for name in ("model", "output"):
        whole_files.remove_leftovers(root / name)  # of a rank that was killed
    if warning := checkpoints_warning(root):
        get_logger().warning("warning: %s", warning)
    if sizes := sizes_line(root):
        get_logger().info("%s", sizes)
    open_to_readers(root / "model")
    owner = hand_over(root)
    if owner is not None:
        get_logger().info("outputs: handed to the owner of the mounted folders, uid %d", owner)
    get_logger().info("%s", "; ".join([f"the job ends with exit code {outcome.code}", *notes]))


def outcome_fields(outcome: Outcome, now: float) -> dict[str, Any]:
    """An outcome for the wire, at the time `now` of this host's clock, of which the other side hears only how long ago
    the failure showed. With one report it fits a line; the reports of all ranks of a host may not.
    """
    report = outcome.report
    fields = report and {**report.to_fields(), "age": max(0.0, now - report.when)}
    return {"code": outcome.code, "report": fields, "leaves_model": outcome.leaves_model}


def read_outcome(fields: Mapping[str, Any], now: float) -> Outcome:
    """What `outcome_fields` wrote and the wire has checked, its times by this host's clock: two hosts' clocks may be
    minutes apart, and then the earlier of two failures would not be the one that showed first.
    """
    report = fields["report"]
    report = report and FailureReport.from_fields({**report, "when": now - report["age"]})
    return Outcome(fields["code"], report, fields["leaves_model"])
