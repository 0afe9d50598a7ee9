"""Judge each start and each job, and render the page of results."""

import itertools
import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import report
from bench.jobs.killing import CompletedKill, Kill, last_step
from bench.jobs.saved_checkpoints import step_of

_RESUMES = re.compile(r"going on from \S*?(checkpoint-[\w-]+)")
MOST_DIFFERENCE = 1e-4
NO_FAULT = (
    "No fault: no incomplete checkpoint was read, and no kill lost more than the steps since the last checkpoint."
)


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a job. whole: the names of the complete checkpoints that it found, by step; log: the leader's;
    codes: of its hosts or ranks; kill, completed_kill: None if nothing was killed.
    """

    whole: tuple[str, ...]
    log: str
    codes: tuple[int, ...]
    kill: Kill | None = None
    completed_kill: CompletedKill | None = None

    @property
    def resumed_from(self) -> str:
        """The checkpoint that the log names; empty if it started at step 0."""
        match = _RESUMES.search(self.log)
        return match[1] if match else ""


@dataclass(slots=True)
class KilledJob:
    """All starts of a job. difference: the largest of a weight from a job without kills; None if it has no weights.

    spoiled: incomplete checkpoints that S3 restored in part.
    """

    hosts: int
    starts: list[Start] = field(default_factory=list)
    difference: float | None = None
    spoiled: int = 0

    @property
    def kills(self) -> list[tuple[Kill, CompletedKill]]:
        return [(each.kill, each.completed_kill) for each in self.starts if each.kill and each.completed_kill]


def steps_kept(before: Start, save_every: int) -> int:
    """The earliest step from which the next start may resume.

    A step is logged before its checkpoint is written, so only the previous checkpoint must be complete. If SIGTERM
    ended all ranks or hosts, they have saved the last step.
    """
    if before.kill is None or before.completed_kill is None:
        return 0
    first_step = step_of(before.resumed_from)
    logged = max(before.completed_kill.step, first_step)
    if before.kill.number == signal.SIGTERM and set(before.codes) == {128 + signal.SIGTERM}:
        return logged
    return max(max(0, logged - 1) // save_every * save_every, first_step)


def faults_of_starts(starts: Sequence[Start], save_every: int) -> list[str]:
    """The faults in the starts of one job: incomplete checkpoints that were read, and lost steps."""
    faults = []
    for number, start in enumerate(starts, 1):
        resumed = start.resumed_from
        newest = start.whole[-1] if start.whole else ""
        if resumed and resumed not in start.whole:
            faults.append(f"start {number} resumed from {resumed}, which is incomplete")
        elif last_step(start.log) and step_of(resumed) < step_of(newest):
            faults.append(f"start {number} ignored {newest} and resumed from {resumed or 'step 0'}")
        if number > 1:
            before = starts[number - 2]
            if (least_step := steps_kept(before, save_every)) > step_of(newest):
                faults.append(f"start {number} found no checkpoint of step {least_step} or later after {before.kill}")
    return faults


def faults_of(job: KilledJob, save_every: int) -> list[str]:
    """All faults of a job."""
    faults = faults_of_starts(job.starts, save_every)
    last = job.starts[-1]
    if any(last.codes):
        faults.append(f"the last start ended with {last.codes}")
    elif job.difference is None:
        faults.append("the job has no weights")
    elif job.difference > MOST_DIFFERENCE:
        faults.append(f"its weights differ by {job.difference:.1e}")
    return faults


def shortfall(jobs: Sequence[KilledJob], requested: int) -> str:
    """A sentence if fewer than `requested` kills were done, or fewer than a fifth of them during a checkpoint."""
    completed = [completed_kill for job in jobs for _, completed_kill in job.kills]
    saving, wanted = sum(each.saving for each in completed), requested // 5
    if len(completed) >= requested and saving >= wanted:
        return ""
    return (
        f"Too few: {len(completed)} kills of {requested}, {saving} of them between a checkpoint's first byte and its "
        f"manifest; {wanted} are needed."
    )


def steps_lost(job: KilledJob) -> list[int]:
    """The repeated steps after each kill in training. A start that was killed before its first step is skipped."""
    trained = [start for start in job.starts if start.resumed_from or last_step(start.log)]
    pairs = itertools.pairwise(trained)
    return [
        max(0, before.completed_kill.step - step_of(after.resumed_from))
        for before, after in pairs
        if before.completed_kill and before.completed_kill.step
    ]


def render(title: str, lines: Sequence[str], jobs: Sequence[KilledJob], save_every: int) -> str:
    """The page: the number of kills of each kind, the repeated steps, and every fault."""
    starts = [start for job in jobs for start in job.starts]
    lost = [steps for job in jobs for steps in steps_lost(job)]
    differences = [job.difference for job in jobs if job.difference is not None]
    figures = {
        "jobs, and their starts": f"{len(jobs)}, {len(starts)}",
        "starts that resumed from a checkpoint": str(sum(bool(start.resumed_from) for start in starts)),
        "incomplete checkpoints that S3 restored, with some of their files": str(sum(job.spoiled for job in jobs)),
        "repeated steps after a kill in training: mean, most": (
            f"{sum(lost) / len(lost):.1f}, {max(lost)}" if lost else "none"
        ),
        "largest difference of a weight from the uninterrupted job's": (
            f"{max(differences):.1e}" if differences else "no job had weights"
        ),
    }
    faults = [
        f"- job {number} on {job.hosts} {'host' if job.hosts == 1 else 'hosts'}: {fault}"
        for number, job in enumerate(jobs, 1)
        for fault in faults_of(job, save_every)
    ]
    verdict = ["Faults:", "", *faults] if faults else [NO_FAULT]
    table = report.table(["", ""], [report.row(*figure) for figure in figures.items()])
    return report.page(title, lines, *_kinds(jobs), "", *table, "", *verdict)


def _kinds(jobs: Sequence[KilledJob]) -> list[str]:
    """The number of kills of each kind."""
    kills = [
        ((job.hosts, kill.victim, kill.number.name), completed_kill)
        for job in jobs
        for kill, completed_kill in job.kills
    ]
    counts = Counter(kind for kind, _ in kills)
    saving = Counter(kind for kind, completed_kill in kills if completed_kill.saving)
    columns = (" hosts", "victim", "signal", " kills", " of them between a checkpoint's first byte and its manifest")
    rows = [report.row(*kind, counts[kind], saving[kind]) for kind in sorted(counts)]
    return report.table(columns, [*rows, report.row("", "all", "", len(kills), saving.total())])
