"""Progress of a training as whole lines for a log.

    step 40 of 312  loss: 2.1300  learning rate: 2.50e-05  examples/s: 12.3  tokens/s: 3456  padding: 8 %  …

There is a line at the first and the last step, and about every `log_seconds` in between. A line has values of all
ranks, which exchange them once per line, not once per step. So each line fixes the step of the next one, from the speed
so far. If steps suddenly take longer, one line is late.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from berth.runtime.rank import Rank
from berth.train.run_qa.ranks import gather
from berth.train.run_qa.reporting.phases import PhaseClock
from berth.train.run_qa.reporting.throughput import Meter, Totals, memory_used, speed, speed_and_padding, step_seconds

_RECENT = 6  # lines that the time left is estimated from


def line(step: str, loss: float, rate: float, measured: Mapping[str, float], memory: float, left: float) -> str:
    """A progress line: `step` is "40 of 312", `measured` the speed and the padding, `memory` in bytes, `left` in
    seconds.

    It has no equals sign, because the metric patterns of notebooks look for one.
    """
    return (
        f"step {step}  loss: {loss:.4f}  learning rate: {rate:.2e}  examples/s: {measured['examples_per_second']:.1f}"
        f"  tokens/s: {measured['tokens_per_second']:.0f}  padding: {measured['padding_percent']:.0f} %"
        f"  memory: {memory / 1e9:.1f} GB  left: {duration(left)}"
    )


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03` under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class LineCallback(TrainerCallback):
    """Writes the progress lines and measures the speed. Every rank has one; only rank 0's writes to the log."""

    def __init__(self, rank: Rank, say: Callable[[str], None], clock: PhaseClock, every: float) -> None:
        """every: seconds between lines."""
        self.rank = rank
        self.say = say
        self.clock = clock
        self.every = every
        self.meter = Meter(rank, clock)
        self.nothing_left = False
        self.overall: dict[str, float] = {}  # the speed of the whole training, after its end
        self._due = 0
        self._rate = 0.0
        self._recent: deque[Totals] = deque(maxlen=_RECENT)
        self._begin = self._logged = Totals(0, 0.0)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Log a warning if the checkpoint is at or past the job's last step."""
        self.nothing_left = state.global_step >= max(state.max_steps, 1)
        if self.nothing_left:
            self.say(
                f"warning: the checkpoint is at step {state.global_step} and the job ends at step {state.max_steps}, "
                "so nothing is left to train and the model is the checkpoint's: raise max_steps or num_train_epochs to "
                "train on, or set overwrite_output_dir to true to start from the beginning"
            )
        self._begin = self._logged = self.meter.read(state.global_step)
        self._recent.append(self._begin)
        self._due = state.global_step + 1

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Note this step's learning rate before the scheduler sets the next one."""
        self._rate = float(others["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """Write a line if one is due."""
        if state.global_step >= min(self._due, state.max_steps):
            self._write_line(args, state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Write the last line of a training that ended early, and compute the overall speed."""
        if state.global_step > self._recent[-1].step:
            self._write_line(args, state)
        if state.global_step > self._begin.step:
            self.overall = speed_and_padding(self._begin, self._recent[-1])

    def logged(self, step: int) -> dict[str, float]:
        """The speed since the last call, for Trainer's own log; all ranks must call it."""
        before, self._logged = self._logged, self.meter.read(step)
        return speed(before, self._logged)

    def _write_line(self, args: TrainingArguments, state: TrainerState) -> None:
        before, now = self._recent[-1], self.meter.read(state.global_step)
        self._recent.append(now)
        due = now.step + max(1, int(self.every / max(step_seconds(before, now), 1e-9)))
        mine = [self.meter.take_loss(), memory_used(cuda=args.device.type == "cuda"), due]
        losses, memory, dues = zip(*gather(mine, self.rank), strict=True)
        self._due = dues[0]
        loss = sum(losses) / len(losses) / (now.step - before.step)
        left = (state.max_steps - now.step) * step_seconds(self._recent[0], now)
        step = f"{now.step} of {state.max_steps}"
        self.say(line(step, loss, self._rate, speed_and_padding(before, now), max(memory), left))
