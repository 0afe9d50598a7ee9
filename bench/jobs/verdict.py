"""What a start of a job and a whole job must show, and the page that says it."""

import itertools
import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench import report
from bench.jobs.kept import step_of
from bench.jobs.killing import Kill, Struck, last_step

GOES_ON = re.compile(r"going on from \S*?(checkpoint-[\w-]+)")
MOST_DIFFERENCE = 1e-4
NO_FAULT = "No fault: no torn checkpoint was read, and no kill cost more than the steps since the last checkpoint."


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a job. whole: the names of the whole checkpoints that it found, by step; log: the leader's; kill and
    struck: None where nothing was killed; codes: of its hosts or ranks.
    """

    whole: tuple[str, ...]
    log: str
    codes: tuple[int, ...]
    kill: Kill | None = None
    struck: Struck | None = None

    @property
    def goes_on_from(self) -> str:
        """The checkpoint that the log names, empty for a start from the beginning."""
        found = GOES_ON.search(self.log)
        return found[1] if found else ""


@dataclass(slots=True)
class KilledJob:
    """All starts of a job, and how far its weights are from those of a job that nobody killed (None: it has none).

    spoiled: half-written folders that S3 brought back in part.
    """

    hosts: int
    starts: list[Start] = field(default_factory=list)
    difference: float | None = None
    spoiled: int = 0

    @property
    def kills(self) -> list[tuple[Kill, Struck]]:
        return [(each.kill, each.struck) for each in self.starts if each.kill and each.struck]


def steps_kept(before: Start, save_every: int) -> int:
    """The step from which the next start must go on, or a later one.

    A line tells of a step before its checkpoint is written, so the newest that must be whole is the one before it. Who
    was asked to stop, and ended by that, has written one of the step.
    """
    if before.kill is None or before.struck is None:
        return 0
    begun = step_of(before.goes_on_from)
    told = max(before.struck.step, begun)
    if before.kill.number == signal.SIGTERM and set(before.codes) == {128 + signal.SIGTERM}:
        return told
    return max(max(0, told - 1) // save_every * save_every, begun)


def faults_of_starts(starts: Sequence[Start], save_every: int) -> list[str]:
    """What is wrong with the starts of one job: torn checkpoints that were read, and steps that were lost."""
    faults = []
    for number, start in enumerate(starts, 1):
        found = start.goes_on_from
        newest = start.whole[-1] if start.whole else ""
        if found and found not in start.whole:
            faults.append(f"start {number} went on from {found}, which is not whole")
        elif last_step(start.log) and step_of(found) < step_of(newest):
            faults.append(f"start {number} passed over {newest} and went on from {found or 'nothing'}")
        if number > 1:
            before = starts[number - 2]
            if (kept := steps_kept(before, save_every)) > step_of(newest):
                faults.append(f"start {number} found no checkpoint of step {kept} or later after {before.kill}")
    return faults


def faults_of(job: KilledJob, save_every: int) -> list[str]:
    """What is wrong with a job; nothing for one that lost nothing."""
    faults = faults_of_starts(job.starts, save_every)
    last = job.starts[-1]
    if any(last.codes):
        faults.append(f"the last start ended with {last.codes}")
    elif job.difference is None:
        faults.append("the job has no weights")
    elif job.difference > MOST_DIFFERENCE:
        faults.append(f"its weights differ by {job.difference:.1e}")
    return faults


def shortfall(jobs: Sequence[KilledJob], asked: int) -> str:
    """What is missing of the kills that were `asked` for, and of a fifth of them in the writing of a checkpoint."""
    struck = [struck for job in jobs for _, struck in job.kills]
    saving, wanted = sum(each.saving for each in struck), asked // 5
    if len(struck) >= asked and saving >= wanted:
        return ""
    return (
        f"Too few: {len(struck)} kills of {asked}, {saving} of them between a checkpoint's first byte and its "
        f"manifest, where {wanted} are wanted."
    )


def steps_lost(job: KilledJob) -> list[int]:
    """Of each kill in training, the steps that were then done again. A start that was killed before it had looked for a
    checkpoint did none.
    """
    trained = [start for start in job.starts if start.goes_on_from or last_step(start.log)]
    pairs = itertools.pairwise(trained)
    return [
        max(0, before.struck.step - step_of(after.goes_on_from))
        for before, after in pairs
        if before.struck and before.struck.step
    ]


def render(title: str, lines: Sequence[str], jobs: Sequence[KilledJob], save_every: int) -> str:
    """The page: how many kills of each kind, what they cost, and every fault."""
    starts = [start for job in jobs for start in job.starts]
    lost = [steps for job in jobs for steps in steps_lost(job)]
    differences = [job.difference for job in jobs if job.difference is not None]
    figures = {
        "jobs, and their starts": f"{len(jobs)}, {len(starts)}",
        "starts that went on from a checkpoint": str(sum(bool(start.goes_on_from) for start in starts)),
        "half-written folders that S3 brought back, with some of their files": str(sum(job.spoiled for job in jobs)),
        "steps done again after a kill in training: mean, most": (
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
    said = ["Faults:", "", *faults] if faults else [NO_FAULT]
    table = report.table(["", ""], [report.row(*figure) for figure in figures.items()])
    return report.page(title, lines, *_kinds(jobs), "", *table, "", *said)


def _kinds(jobs: Sequence[KilledJob]) -> list[str]:
    """How many kills there were of each kind."""
    kills = [((job.hosts, kill.victim, kill.number.name), struck) for job in jobs for kill, struck in job.kills]
    counts = Counter(kind for kind, _ in kills)
    saving = Counter(kind for kind, struck in kills if struck.saving)
    columns = (" hosts", "victim", "signal", " kills", " of them between a checkpoint's first byte and its manifest")
    rows = [report.row(*kind, counts[kind], saving[kind]) for kind in sorted(counts)]
    return report.table(columns, [*rows, report.row("", "all", "", len(kills), saving.total())])
