"""A training job as a person watches it in a terminal: a live block for each host, under the lines that stay.

The whole log is in train.log. Of run_qa's lines those stay that stand out; a program of one's own has all of its lines
shown, for only its author knows which matter.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from docker.models.containers import Container
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from berth.local import job_log, opt_ml
from berth.local.container_memory import MemoryWatch
from berth.local.job import TrainingJob, TrainOutcome, run_training_job
from berth.local.signals import Interrupts
from berth.local.training_progress import OVER, HostProgress, State, advance, stands_out

_LINES_OF_A_BLOCK = 3
_NARROW = 60
_STYLES = {State.FAILED: "bold red", State.STOPPING: "yellow", State.STOPPED: "yellow"}


def run_on_screen(job: TrainingJob, *, image: str, console: Console) -> TrainOutcome:
    """`run_training_job`, shown on a terminal; raises what that raises."""
    with JobScreen(job, console) as screen:
        done = run_training_job(job, image=image, log=screen.log, say=screen.say, watch=screen.watch)
        screen.end(done)
        return done


class JobScreen:
    """From the moment that a job's containers are made, a block for each host; what is printed appears above them.

    At the end a line for each host stays, with how it ended. A job that is refused before shows none.
    """

    def __init__(self, job: TrainingJob, console: Console) -> None:
        self._hosts = {name: HostProgress() for name in opt_ml.host_names(job.hosts)}
        self._path = job.output / job_log.NAME
        self._shows_all = job.program is not None
        self._interrupts: Interrupts | None = None
        self._memory: Mapping[str, int] = {}
        self._began = time.monotonic()
        self._open = ExitStack()
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for name, host in self._hosts.items():
            if host.state not in OVER:
                self._hosts[name] = replace(host, state=State.STOPPED)
        self._open.close()

    def watch(self, containers: Mapping[str, Container], interrupts: Interrupts) -> None:
        """Shows the hosts, whose containers are made and not started; `interrupts` are what stops the job."""
        self._interrupts = interrupts
        self._open.enter_context(Live(self, console=self._console, refresh_per_second=4))
        self._memory = self._open.enter_context(MemoryWatch(containers)).used

    def log(self, line: str) -> None:
        """A line of the job's log, with its host before it."""
        name, _, text = line.partition(" | ")
        shown = _shown(text)
        self._hosts[name] = advance(self._hosts[name], shown.plain, time.monotonic())
        if (self._shows_all or stands_out(shown.plain)) and not job_log.is_reason(line):
            self._console.print(Text(f"{name} | ").append_text(shown), soft_wrap=True)

    def say(self, line: str) -> None:
        """A line of ours."""
        self._console.print(Text(line), soft_wrap=True)

    def end(self, outcome: TrainOutcome) -> None:
        """The job has ended so; what its containers did not say themselves, they can't say any more."""
        for name, host in self._hosts.items():
            if host.state not in OVER:
                self._hosts[name] = replace(host, state=State.FAILED if name in outcome.failures else State.ENDED)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The blocks as of now, no wider than the terminal is now."""
        width = options.max_width - 1  # a terminal that shrinks wraps what is as wide as it was
        over = all(host.state in OVER for host in self._hosts.values())
        whole = not over and len(self._hosts) * _LINES_OF_A_BLOCK + 2 <= console.size.height
        for name, host in self._hosts.items():
            yield _head(name.ljust(max(map(len, self._hosts))), self._seen(host), width)
            if whole:
                for text, style in ((self._details(name, host), ""), (host.last_line, "dim")):
                    if text:
                        yield _line(f"    {text}", width, style)
        if not over:
            yield _line(f"{_duration(time.monotonic() - self._began)} so far; the whole log: {self._path}", width)

    def _seen(self, host: HostProgress) -> HostProgress:
        """A host, stopping where the job is told to stop."""
        stops = self._interrupts is not None and self._interrupts.signum is not None
        return replace(host, state=State.STOPPING) if stops and host.state not in OVER else host

    def _details(self, name: str, host: HostProgress) -> str:
        """Loss, speed and memory, as far as they are known."""
        parts = []
        if host.step is not None:
            parts.append(f"loss {host.step.loss:.4f}")
            if host.step.examples is not None:
                parts.append(f"{host.step.examples:.1f} examples/s")
            if host.state is State.TRAINING and host.step.left is not None:
                parts.append(f"{_duration(max(0.0, host.step.left + host.seen - time.monotonic()))} left")
        if name in self._memory:
            parts.append(f"{self._memory[name] / 1e9:.1f} GB of memory")
        return ", ".join(parts)


def _head(name: str, host: HostProgress, width: int) -> Table:
    """A host's first line: its name, what it does, and a bar where it is known how far it is."""
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
    """What a host does, in a few words."""
    match host.state:
        case State.TRAINING if host.step:
            return f"training step {host.step.number} of {host.step.total}"
        case State.ENDED if host.exit_code is not None:
            return f"ended, exit code {host.exit_code}"
        case _:
            return str(host.state)


def _share(host: HostProgress) -> float | None:
    """How much is done of what the host does, 0 to 1; None if nobody knows."""
    if host.state is State.EVALUATING:
        return host.percent / 100
    if host.step is None:
        return None
    # The log need not have a line for the last step.
    return 1.0 if host.exit_code == 0 else host.step.number / max(host.step.total, 1)


def _shown(line: str) -> Text:
    """A line as a terminal would show it: colours kept, and of what a bar has written over itself the last."""
    return Text.from_ansi(line.rstrip("\r").rpartition("\r")[2].expandtabs())


def _line(text: str, width: int, style: str = "") -> Text:
    shown = Text(text, style=style, no_wrap=True)
    shown.truncate(width, overflow="ellipsis")
    return shown


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
