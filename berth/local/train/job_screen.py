"""The live screen of a training job in a terminal: a block for each host, below the printed lines.

The whole log is in train.log. Of run_qa's lines only important ones are printed. Of a user's own program all lines are
printed, because only its author knows which matter.
"""

import re
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from berth.local import opt_ml
from berth.local.signals import Interrupts
from berth.local.train import job_log
from berth.local.train.job import TrainingJob, TrainOutcome, run_training_job

# As Python writes a float; nan and inf if the training diverged.
_FLOAT = r"(?:-?(?:\d+(?:\.\d+)?|inf)|nan)"
_STEP = re.compile(rf"\bstep (\d+) of (\d+)\s+loss: ({_FLOAT})")
_EXAMPLES = re.compile(r"  examples/s: (\d+(?:\.\d+)?)")
_LEFT = re.compile(r"  left: ([\d:]+)")
_EVALUATED = re.compile(r"\bevaluation (\d+) % done")
_METRIC = re.compile(rf"(?:^|\s)\w+ = {_FLOAT}$")
_ENDED = re.compile(r"berth: the job ends with exit code (\d+)(; )?")
# Lines of berth and of libraries.
_STANDS_OUT = re.compile(
    r"(?:berth: )?(?:error|failed|warning|stopping|trace): |summary  |going on from ", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The optimiser's step `number` of `total`, and the mean loss since the last such line. Optional: examples per
    second, and the time until the end of the training, such as 1:02:03.
    """

    number: int
    total: int
    loss: float
    examples: float | None = None
    left: str = ""


class State(StrEnum):
    """A host's state."""

    STARTING = "starting"
    RUNNING = "running"
    TRAINING = "training"
    EVALUATING = "evaluating"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    ENDED = "ended"


OVER = frozenset({State.STOPPED, State.FAILED, State.ENDED})


@dataclass(slots=True)
class HostProgress:
    """A host's progress by the lines of its log; last_line: the last line without progress."""

    state: State = State.STARTING
    step: TrainingStep | None = None
    percent: int = 0
    exit_code: int | None = None
    last_line: str = ""

    def take(self, line: str) -> None:
        """Takes one more line of the host's log."""
        progress = read_progress(line)
        if ended := _ENDED.match(line):
            self.state, self.exit_code = State.ENDED, int(ended[1])
        elif isinstance(progress, TrainingStep):
            self.step = progress
        elif progress is not None:
            self.percent = progress
        if progress is None and line:
            self.last_line = line
        if self.state not in (State.STOPPING, *OVER):
            self.state = _next_state(self.state, line, progress)

    @property
    def share(self) -> float | None:
        """The finished share of the training or evaluation, 0 to 1; None if unknown."""
        if self.state is State.EVALUATING:
            return self.percent / 100
        if self.step is None:
            return None
        # The log may not have a line for the last step.
        return 1.0 if self.exit_code == 0 else self.step.number / max(self.step.total, 1)


def read_progress(line: str) -> TrainingStep | int | None:
    """The step, or the percentage of an evaluation, in a line of a job's log; None if the line has neither."""
    if found := _STEP.search(line):
        rest = line[found.end() :]
        examples, left = _EXAMPLES.search(rest), _LEFT.search(rest)
        return TrainingStep(
            int(found[1]),
            int(found[2]),
            float(found[3]),
            float(examples[1]) if examples else None,
            left[1] if left else "",
        )
    if found := _EVALUATED.search(line):
        return int(found[1])
    return None


def _next_state(state: State, line: str, progress: TrainingStep | int | None) -> State:
    if isinstance(progress, TrainingStep):
        return State.TRAINING
    if progress is not None:
        return State.EVALUATING
    if line.startswith("stopping: "):
        return State.STOPPING
    if line and not line.startswith("berth: ") and state is State.STARTING:
        return State.RUNNING
    return state


def is_progress(line: str) -> bool:
    """Whether a line has the job's progress, or a metric's final value: `name = number`."""
    return read_progress(line) is not None or _METRIC.search(line) is not None


def stands_out(line: str) -> bool:
    """Whether a line of run_qa is important for the user: an error, a warning, a result."""
    ended = _ENDED.match(line)
    return _METRIC.search(line) is not None or _STANDS_OUT.match(line) is not None or bool(ended and ended[2])


_LINES_OF_A_BLOCK = 3
_STYLES = {State.FAILED: "bold red", State.STOPPING: "yellow", State.STOPPED: "yellow"}


def run_on_screen(job: TrainingJob, *, image: str, console: Console) -> TrainOutcome:
    """`run_training_job` with a live screen; raises the same exceptions."""
    with JobScreen(job, console) as screen:
        outcome = run_training_job(job, image=image, log=screen.log, say=screen.say, watch=screen.watch)
        screen.end(outcome)
        return outcome


class JobScreen:
    """Shows a block for each host as soon as the job's containers are created; printed lines appear above the blocks.

    At the end a line for each host stays, with its final state. If the job fails before, no block is shown.
    """

    def __init__(self, job: TrainingJob, console: Console) -> None:
        self._hosts = {name: HostProgress() for name in opt_ml.host_names(job.hosts)}
        self._path = job.output / job_log.NAME
        self._shows_all = job.program is not None
        self._interrupts: Interrupts | None = None
        self._began = time.monotonic()
        self._console = console
        self._live = Live(get_renderable=self._blocks, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for host in self._running():
            host.state = State.STOPPED
        self._live.stop()

    def watch(self, interrupts: Interrupts) -> None:
        """Starts the screen, before the containers start; interrupts: the signals that stop the job."""
        self._interrupts = interrupts
        self._live.start()

    def log(self, line: str) -> None:
        """Takes a line of the job's log, prefixed with its host."""
        name, _, text = line.partition(" | ")
        shown = _shown(text)
        self._hosts[name].take(shown.plain)
        if (self._shows_all or stands_out(shown.plain)) and not job_log.is_reason(line):
            self._console.print(Text(f"{name} | ").append_text(shown), soft_wrap=True)

    def say(self, line: str) -> None:
        """Prints a line of berth's."""
        self._console.print(Text(line), soft_wrap=True)

    def end(self, outcome: TrainOutcome) -> None:
        """Sets the final state of hosts whose log did not tell it."""
        for name, host in self._hosts.items():
            if host.state not in OVER:
                host.state = State.FAILED if name in outcome.failures else State.ENDED

    def _running(self) -> list[HostProgress]:
        return [host for host in self._hosts.values() if host.state not in OVER]

    def _blocks(self) -> Group:
        """The current blocks; each shows its host's last line if the terminal is high enough for all of them."""
        stopping = self._interrupts is not None and self._interrupts.signum is not None
        running = bool(self._running())
        whole = running and len(self._hosts) * _LINES_OF_A_BLOCK + 2 <= self._console.size.height
        columns = (Column(style="bold", no_wrap=True), Column(ratio=1), Column(width=20), Column(no_wrap=True))
        table = Table.grid(*columns, padding=(0, 1), expand=True)
        for name, host in self._hosts.items():
            share = host.share
            bar: RenderableType = "" if share is None else ProgressBar(total=1.0, completed=share)
            state = State.STOPPING if stopping and host.state not in OVER else host.state
            style = "bold red" if host.exit_code else _STYLES.get(state, "")
            lines = [Text(_doing(host, state), style)]
            if whole and host.last_line:
                lines.append(Text(host.last_line, "dim", no_wrap=True, overflow="ellipsis"))
            table.add_row(name, Group(*lines), bar, "" if share is None else f"{100 * share:3.0f} %")
        if not running:
            return Group(table)
        footer = f"{_duration(time.monotonic() - self._began)} so far; the whole log: {self._path}"
        return Group(table, Text(footer, no_wrap=True, overflow="ellipsis"))


def _doing(host: HostProgress, state: State) -> str:
    """A host's state, and in a training loss, speed and remaining time, if known."""
    if state is State.ENDED and host.exit_code is not None:
        return f"ended, exit code {host.exit_code}"
    if state is not State.TRAINING or host.step is None:
        return str(state)
    step = host.step
    parts = [f"training step {step.number} of {step.total}", f"loss {step.loss:.4f}"]
    if step.examples is not None:
        parts.append(f"{step.examples:.1f} examples/s")
    if step.left:
        parts.append(f"{step.left} left")
    return ", ".join(parts)


def _shown(line: str) -> Text:
    """A line as a terminal would show it: with colours, and only the text after the last carriage return."""
    return Text.from_ansi(line.rstrip("\r").rpartition("\r")[2].expandtabs())


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
