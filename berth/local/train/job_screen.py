"""The live screen of a training job in a terminal: a block for each host, below the printed lines.

The whole log is in train.log. Of run_qa's lines only important ones are printed. Of a user's own program all lines are
printed, because only its author knows which matter.
"""

import re
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from berth.local import opt_ml
from berth.local.signals import Interrupts
from berth.local.train import job_log
from berth.local.train.job import TrainingJob, TrainOutcome, run_training_job

# As Python writes a float; nan and inf if the training diverged.
_FLOAT = r"(?:-?(?:\d+(?:\.\d+)?|inf)|nan)"
_STEP = re.compile(rf"\bstep (\d+) of (\d+)\s+loss: ({_FLOAT})")
_EXAMPLES = re.compile(r"  examples/s: (\d+(?:\.\d+)?)")
_LEFT = re.compile(r"  left: (?:(\d+):)?(\d+):(\d\d)\b")
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
    second, and the seconds until the end of the training.
    """

    number: int
    total: int
    loss: float
    examples: float | None = None
    left: float | None = None


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


@dataclass(frozen=True, slots=True)
class HostProgress:
    """A host's progress by the lines of its log. seen: when `step` was read, by the caller's clock; last_line: the last
    line without progress.
    """

    state: State = State.STARTING
    step: TrainingStep | None = None
    seen: float = 0.0
    percent: int = 0
    exit_code: int | None = None
    last_line: str = ""


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
            int(left[1] or 0) * 3600 + int(left[2]) * 60 + int(left[3]) if left else None,
        )
    if found := _EVALUATED.search(line):
        return int(found[1])
    return None


def advance(host: HostProgress, line: str, now: float) -> HostProgress:
    """The progress of a host after one more line of its log, which came at `now` seconds."""
    if ended := _ENDED.match(line):
        return replace(host, state=State.ENDED, exit_code=int(ended[1]), last_line=line)
    read = read_progress(line)
    if isinstance(read, TrainingStep):
        host = replace(host, step=read, seen=now)
    elif read is not None:
        host = replace(host, percent=read)
    elif line:
        host = replace(host, last_line=line)
    if host.state in (State.STOPPING, *OVER):
        return host
    return replace(host, state=_next_state(host.state, line, read))


def _next_state(state: State, line: str, read: TrainingStep | int | None) -> State:
    if isinstance(read, TrainingStep):
        return State.TRAINING
    if read is not None:
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
_NARROW = 60
_STYLES = {State.FAILED: "bold red", State.STOPPING: "yellow", State.STOPPED: "yellow"}


def run_on_screen(job: TrainingJob, *, image: str, console: Console) -> TrainOutcome:
    """`run_training_job` with a live screen; raises the same exceptions."""
    with JobScreen(job, console) as screen:
        done = run_training_job(job, image=image, log=screen.log, say=screen.say, watch=screen.watch)
        screen.end(done)
        return done


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
        self._live = Live(self, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for name, host in self._hosts.items():
            if host.state not in OVER:
                self._hosts[name] = replace(host, state=State.STOPPED)
        self._live.stop()

    def watch(self, interrupts: Interrupts) -> None:
        """Starts the screen, before the containers start; interrupts: the signals that stop the job."""
        self._interrupts = interrupts
        self._live.start()

    def log(self, line: str) -> None:
        """Takes a line of the job's log, prefixed with its host."""
        name, _, text = line.partition(" | ")
        shown = _shown(text)
        self._hosts[name] = advance(self._hosts[name], shown.plain, time.monotonic())
        if (self._shows_all or stands_out(shown.plain)) and not job_log.is_reason(line):
            self._console.print(Text(f"{name} | ").append_text(shown), soft_wrap=True)

    def say(self, line: str) -> None:
        """Prints a line of berth's."""
        self._console.print(Text(line), soft_wrap=True)

    def end(self, outcome: TrainOutcome) -> None:
        """Sets the final state of hosts whose log did not tell it."""
        for name, host in self._hosts.items():
            if host.state not in OVER:
                self._hosts[name] = replace(host, state=State.FAILED if name in outcome.failures else State.ENDED)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The current blocks, in the terminal's current width."""
        width = options.max_width - 1  # a shrinking terminal would wrap lines of its full width
        over = all(host.state in OVER for host in self._hosts.values())
        whole = not over and len(self._hosts) * _LINES_OF_A_BLOCK + 2 <= console.size.height
        for name, host in self._hosts.items():
            yield _head(name.ljust(max(map(len, self._hosts))), self._seen(host), width)
            if whole:
                for text, style in ((_details(host), ""), (host.last_line, "dim")):
                    if text:
                        yield _line(f"    {text}", width, style)
        if not over:
            yield _line(f"{_duration(time.monotonic() - self._began)} so far; the whole log: {self._path}", width)

    def _seen(self, host: HostProgress) -> HostProgress:
        """The host, with the state STOPPING if a signal has come."""
        stops = self._interrupts is not None and self._interrupts.signum is not None
        return replace(host, state=State.STOPPING) if stops and host.state not in OVER else host


def _details(host: HostProgress) -> str:
    """Loss, speed and remaining time, if known."""
    if host.step is None:
        return ""
    parts = [f"loss {host.step.loss:.4f}"]
    if host.step.examples is not None:
        parts.append(f"{host.step.examples:.1f} examples/s")
    if host.state is State.TRAINING and host.step.left is not None:
        parts.append(f"{_duration(max(0.0, host.step.left + host.seen - time.monotonic()))} left")
    return ", ".join(parts)


def _head(name: str, host: HostProgress, width: int) -> Table:
    """A host's first line: its name, its state, and a bar if its progress is known."""
    grid = Table.grid(padding=(0, 1))
    style = "bold red" if host.exit_code else _STYLES.get(host.state, "")
    row: list[RenderableType] = [Text(name, style="bold"), Text(_doing(host), style=style)]
    columns = [len(name), 29]
    done = _share(host)
    if done is not None and width >= _NARROW:
        columns += [width - sum(columns) - 8, 5]
        row += [ProgressBar(total=1.0, completed=done), Text(f"{100 * done:3.0f} %")]
    for each in columns:
        grid.add_column(width=each, no_wrap=True, overflow="ellipsis")
    grid.add_row(*row)
    return grid


def _doing(host: HostProgress) -> str:
    """A host's state in a few words."""
    match host.state:
        case State.TRAINING if host.step:
            return f"training step {host.step.number} of {host.step.total}"
        case State.ENDED if host.exit_code is not None:
            return f"ended, exit code {host.exit_code}"
        case _:
            return str(host.state)


def _share(host: HostProgress) -> float | None:
    """The finished share of the training or evaluation, 0 to 1; None if unknown."""
    if host.state is State.EVALUATING:
        return host.percent / 100
    if host.step is None:
        return None
    # The log may not have a line for the last step.
    return 1.0 if host.exit_code == 0 else host.step.number / max(host.step.total, 1)


def _shown(line: str) -> Text:
    """A line as a terminal would show it: with colours, and only the text after the last carriage return."""
    return Text.from_ansi(line.rstrip("\r").rpartition("\r")[2].expandtabs())


def _line(text: str, width: int, style: str = "") -> Text:
    shown = Text(text, style=style, no_wrap=True)
    shown.truncate(width, overflow="ellipsis")
    return shown


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
