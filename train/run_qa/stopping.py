"""When a training saves and stops beyond what Trainer's own settings say: at a signal, and every few minutes.

All ranks agree (agreement) after each micro-batch. At a stop the step under way is finished, or broken off if that
would take too long; what is trained is saved where Trainer saves at the end of an epoch, to which a training that stops
comes as well; and nothing is evaluated any more.
"""

import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from berth.train.run_qa.agreement import AgreedStop, Agreement, RankRequest
from berth.train.run_qa.checkpoints import random_states
from berth.train.run_qa.checkpoints.saving import CheckpointTrainer
from berth.train.run_qa.recipe import TrainingSettings
from berth.train.run_qa.stop_signal import StopSignal

STEP_SECONDS = 60.0
"""From the signal to the end of the step under way at most. Of SageMaker's 120 s the rest is for the checkpoint."""
LIMIT_SECONDS = 100.0
"""For the step and the checkpoint together: of SageMaker's 120 s the job's end takes some as well."""
SLOW_SECONDS = 1.0
"""A micro-batch that takes longer is worth an answer at once at the end of a step, which costs a millisecond."""


class Stopping(TrainerCallback):
    """One rank's side."""

    def __init__(self, signal: StopSignal, settings: TrainingSettings, trainer: CheckpointTrainer) -> None:
        self.told = False  # all ranks have agreed to stop
        self._signal = signal
        self._settings = settings
        self._trainer = trainer
        self._rank = trainer.rank
        self._say = trainer.say
        self._agreement = Agreement(trainer.rank)
        self._answers_at_once = False
        self._told_when = 0.0
        self._batches = MicroBatches()
        self._random: dict[str, Any] = {}
        self._state = TrainerState()
        self._save_due = False
        self._saved_when = time.monotonic()
        self._saved_step = 0
        self._checkpoint: Path | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """From here on a signal is waited for."""
        self._state = state
        self._saved_step = state.global_step
        self._checkpoint = self._trainer.last_checkpoint
        self._saved_when = time.monotonic()
        self._signal.hold()

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Before a step's first micro-batch."""
        self._batches.begin_step(time.monotonic())

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """After each micro-batch but a step's last."""
        self._batches.count(time.monotonic())
        left = args.gradient_accumulation_steps - self._batches.of_step
        if RankRequest.BREAK_OFF in self._heed(self._agreement.exchange(self._wish(left))):
            self._say(f"stopping: step {state.global_step + 1} would take too long, and is broken off")
            if self._random:  # else no step was done, and nothing is saved
                random_states.restore(self._random)
            control.should_training_stop = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """After a step's last micro-batch and its update."""
        self._batches.count(time.monotonic())
        ask = self._agreement.settle if self._answers_at_once else self._agreement.exchange
        self._heed(ask(self._wish(0)))
        if args.gradient_accumulation_steps > 1:
            self._random = random_states.current()
        at_epoch_end = float(state.epoch or 0).is_integer()
        if self.told:
            control.should_training_stop = True
            control.should_evaluate = control.should_save = False  # `on_epoch_end` comes next
        elif self._save_due and not at_epoch_end:
            control.should_save = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Also the last call of a training that stops, wherever in the epoch that is."""
        if self.told:
            control.should_evaluate = False
            control.should_save = self.save_is_due
        elif self._save_due:
            control.should_save = control.should_save or self.save_is_due

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """A checkpoint of this step is there, or could not be written."""
        if self._trainer.last_checkpoint != self._checkpoint:
            self._checkpoint, self._saved_step = self._trainer.last_checkpoint, state.global_step
            if (seconds := self._trainer.checkpoint_seconds) > LIMIT_SECONDS:
                self._say(
                    f"warning: the checkpoint took {seconds:.0f} s, and SageMaker ends a stopped job after 120 s: a "
                    "stop loses what was trained since the last checkpoint; set save_minutes lower, or use an instance "
                    "with a faster disk"
                )
        self._saved_when = time.monotonic()
        self._save_due = False

    @property
    def save_is_due(self) -> bool:
        """Whether steps were trained that no checkpoint holds, in a job that writes checkpoints."""
        return self._settings.training["save_strategy"] != "no" and self._state.global_step > self._saved_step

    @property
    def leaves_model(self) -> bool:
        """Whether the job is to write its model: not where a stop left all in S3, or nothing was trained."""
        step, last = self._state.global_step, self._state.max_steps
        saved = self._settings.uploads_checkpoints and not self.save_is_due
        return not self.told or (step > 0 and (step >= last or not saved))

    def interrupted(self) -> bool:
        """Whether all ranks have agreed to stop; all ranks must ask, and get the same answer."""
        self._heed(self._agreement.exchange(self._wish(0)))
        return self.told

    def check(self) -> None:
        """Raises AgreedStop on every rank if any was told to stop by now; waits for all ranks."""
        self._heed(self._agreement.settle(self._wish(0)))
        if self.told:
            raise AgreedStop

    def end(self, model: Path) -> None:
        """Raises JobStopped on every rank, once rank 0 has written what it writes, if the job was told to stop."""
        self._agreement.settle(RankRequest(0))  # together, for mpirun ends all others soon after the first that ends
        if not self.told:
            return
        checkpoint = self._checkpoint if self._settings.keeps_checkpoints else None
        step, last = self._state.global_step, self._state.max_steps
        left = model if self.leaves_model else None
        uploaded = self._settings.uploads_checkpoints
        raise self._signal.stopped(stopped_where(step, last, left, checkpoint, uploaded=uploaded))

    def _wish(self, batches_left: int) -> RankRequest:
        """What this rank asks for now; `batches_left` of the step under way, 0 at its end."""
        now, mean = time.monotonic(), self._batches.mean_seconds
        wish = RankRequest(0)
        if self._signal.number:
            wish |= RankRequest.STOP
        waited = now - (self._signal.when or self._told_when)
        limit = step_seconds(self._trainer.checkpoint_seconds)
        if (self._signal.number or self.told) and overruns(waited, batches_left, mean, limit):
            wish |= RankRequest.BREAK_OFF
        every = self._settings.save_seconds
        if every and self._rank.leads and now - self._saved_when >= every:
            self._saved_when = now
            wish |= RankRequest.SAVE
        if mean > SLOW_SECONDS:
            wish |= RankRequest.ANSWER_AT_ONCE
        return wish

    def _heed(self, agreed: RankRequest) -> RankRequest:
        if RankRequest.STOP in agreed and not self.told:
            self.told, self._told_when = True, time.monotonic()
            self._say(f"stopping: {self._signal.name()} came, so the job saves what it has and ends")
        self._save_due = self._save_due or RankRequest.SAVE in agreed
        self._answers_at_once = self._answers_at_once or RankRequest.ANSWER_AT_ONCE in agreed
        return agreed


class MicroBatches:
    """Counts those of the step under way, and knows how long one takes; saving and evaluation are not in it."""

    def __init__(self) -> None:
        self.of_step = 0
        self._begin = 0.0
        self._seconds = 0.0
        self._count = 0

    @property
    def mean_seconds(self) -> float:
        """0 before the first."""
        return self._seconds / max(self._count, 1)

    def begin_step(self, now: float) -> None:
        """The next one is a step's first."""
        self.of_step, self._begin = 0, now

    def count(self, now: float) -> None:
        """One is done."""
        self._seconds += now - self._begin
        self._begin = now
        self._count += 1
        self.of_step += 1


def step_seconds(checkpoint_seconds: float) -> float:
    """How long after the signal a step may end, so that a checkpoint which takes so long is written in time as well."""
    return min(STEP_SECONDS, max(0.0, LIMIT_SECONDS - checkpoint_seconds))


def overruns(waited: float, batches_left: int, mean: float, limit: float) -> bool:
    """Whether the step under way would end later than `limit` seconds after the signal: `waited` of them have gone, and
    so many micro-batches are left that take `mean` seconds each.
    """
    return batches_left > 0 and waited + batches_left * mean > limit


def stopped_where(step: int, last: int, model: Path | None, checkpoint: Path | None, *, uploaded: bool) -> str:
    """How far a job came that was stopped, and how it goes on.

    model: where it was written, None if it was not; checkpoint: the newest that a next job finds, for certain where
    SageMaker has `uploaded` it.
    """
    goes_on = "by itself when it is started again with the same checkpoint_s3_uri."
    if model is None and checkpoint is None:
        return f"before the first of its {last} steps was done: start it again."
    if model is None:
        return (
            f"at step {step} of {last}: {checkpoint} holds all that was trained, and the job goes on from it {goes_on}"
        )
    if step >= last:
        return f"after its {last} steps: the model is in {model}, without what was to come after the training."
    as_it_was = f"at step {step} of {last}: the model as it was then is in {model}"
    if checkpoint is not None and not uploaded:
        return f"{as_it_was}, and the job goes on from {checkpoint} if that is still there when it is started again."
    if checkpoint is not None:
        return f"{as_it_was}, but no checkpoint could be written then, and the job goes on from {checkpoint} {goes_on}"
    return (
        f"{as_it_was}, but there is no checkpoint to go on from, and a spot interruption loses it: give the estimator "
        "checkpoint_s3_uri, and a job that is started again goes on."
    )
