"""How far a training job is, and what it measured, by the lines of its log. Pure: lines in, progress out."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

# As Python writes a float: that of a training that came apart is none.
_FLOAT = r"(?:-?(?:\d+(?:\.\d+)?|inf)|nan)"
_STEP = re.compile(rf"\bstep (\d+) of (\d+)\s+loss: ({_FLOAT})")
_EXAMPLES = re.compile(r"  examples/s: (\d+(?:\.\d+)?)")
_LEFT = re.compile(r"  left: (?:(\d+):)?(\d+):(\d\d)\b")
_EVALUATED = re.compile(r"\bevaluation (\d+) % done")
_METRIC = re.compile(rf"(?:^|\s)\w+ = {_FLOAT}$")
_ENDED = re.compile(r"berth: the job ends with exit code (\d+)(; )?")
_INSTALLING = re.compile(r"berth: (?:program: (?:fetching|installing)|pip:)")
_JOINED = re.compile(r"berth: rendezvous: joined the leader")
# Also of libraries.
_STANDS_OUT = re.compile(
    r"(?:berth: )?(?:error|failed|warning|stopping|trace): |summary  |going on from ", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The optimiser's step `number` of `total`, and the mean loss since the last such line. What a line need not have:
    examples a second, and the seconds that the training goes on.
    """

    number: int
    total: int
    loss: float
    examples: float | None = None
    left: float | None = None


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """How much of the evaluation is done, in percent."""

    percent: int


class State(StrEnum):
    """What a host does."""

    STARTING = "starting"
    INSTALLING = "installing"
    JOINED = "with the leader"  # whose log has what they do together
    RUNNING = "running"
    TRAINING = "training"
    EVALUATING = "evaluating"
    SAVING = "saving"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    ENDED = "ended"


OVER = frozenset({State.STOPPED, State.FAILED, State.ENDED})


@dataclass(frozen=True, slots=True)
class HostProgress:
    """How far a host is by the lines of its log, and the last of them that says something else. `seen`: when `step`
    came, in the reader's seconds.
    """

    state: State = State.STARTING
    step: TrainingStep | None = None
    seen: float = 0.0
    percent: int = 0
    exit_code: int | None = None
    last_line: str = ""


def read_progress(line: str) -> TrainingStep | EvaluationProgress | None:
    """How far the job is by a line of its log; None if the line does not say it."""
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
        return EvaluationProgress(int(found[1]))
    return None


def advance(host: HostProgress, line: str, now: float) -> HostProgress:
    """The progress of a host after one more line of its log, which came at `now` seconds."""
    if ended := _ENDED.match(line):
        return replace(host, state=State.ENDED, exit_code=int(ended[1]), last_line=line)
    read = read_progress(line)
    if isinstance(read, TrainingStep):
        host = replace(host, step=read, seen=now)
    elif read is not None:
        host = replace(host, percent=read.percent)
    elif line:
        host = replace(host, last_line=line)
    if host.state in (State.STOPPING, *OVER):
        return host
    return replace(host, state=_next_state(host.state, line, read))


def _next_state(state: State, line: str, read: TrainingStep | EvaluationProgress | None) -> State:
    if isinstance(read, TrainingStep):
        return State.TRAINING
    if read is not None:
        return State.EVALUATING
    if line.startswith("stopping: "):
        return State.STOPPING
    if line.startswith("model: written to "):
        return State.SAVING
    if _INSTALLING.match(line):
        return State.INSTALLING
    if _JOINED.match(line):
        return State.JOINED
    if line and not line.startswith("berth: ") and state in (State.STARTING, State.INSTALLING, State.JOINED):
        return State.RUNNING
    return state


def is_progress(line: str) -> bool:
    """Whether a line says how far the job is, or gives a metric's final value: `name = number`."""
    return read_progress(line) is not None or _METRIC.search(line) is not None


def stands_out(line: str) -> bool:
    """Whether somebody who watches run_qa wants to see the whole line: an error, a warning, a result."""
    ended = _ENDED.match(line)
    return _METRIC.search(line) is not None or _STANDS_OUT.match(line) is not None or bool(ended and ended[2])
