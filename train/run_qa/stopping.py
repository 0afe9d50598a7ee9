"""Saves and stops a training at a signal, and saves it every few minutes, in addition to Trainer's own settings.

All ranks agree after each micro-batch (agreement.py). At a stop the current step is finished, or broken off if that
would take too long. Then nothing is evaluated any more, and the training is saved in `on_epoch_end`: Trainer calls it
when it stops, also in the middle of an epoch.
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
"""Limit from the signal to the end of the current step. The rest of SageMaker's 120 s is for the checkpoint."""
LIMIT_SECONDS = 100.0
"""Limit for the step and the checkpoint together; the rest of SageMaker's 120 s is for the end of the job."""
SLOW_SECONDS = 1.0
"""If micro-batches take longer, the ranks agree at once at the end of a step (a millisecond), not one batch later."""


class Stopping(TrainerCallback):
    """The callback of one rank."""

    def __init__(self, signal: StopSignal, settings: TrainingSettings, trainer: CheckpointTrainer) -> None:
        self.agreed = False  # all ranks have agreed to stop
        self._signal = signal
        self._settings = settings
        self._trainer = trainer
        self._agreement = Agreement(trainer.rank)
        self._answers_at_once = False
        self._agreed_when = 0.0
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
        """From here on a signal no longer ends the process at once."""
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
        """After each micro-batch except a step's last one."""
        self._batches.count(time.monotonic())
        left = args.gradient_accumulation_steps - self._batches.in_step
        if RankRequest.BREAK_OFF in self._apply(self._agreement.exchange(self._request(left))):
            self._trainer.say(f"stopping: step {state.global_step + 1} would take too long and is broken off")
            if self._random:  # empty before the first step is done; nothing is saved then
                random_states.restore(self._random)
            control.should_training_stop = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """After a step's last micro-batch and its update."""
        self._batches.count(time.monotonic())
        ask = self._agreement.settle if self._answers_at_once else self._agreement.exchange
        self._apply(ask(self._request(0)))
        if args.gradient_accumulation_steps > 1:
            self._random = random_states.current()
        at_epoch_end = float(state.epoch or 0).is_integer()
        if self.agreed:
            control.should_training_stop = True
            control.should_evaluate = control.should_save = False  # `on_epoch_end` comes next
        elif self._save_due and not at_epoch_end:
            control.should_save = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Save if it is due. Trainer also calls this when a training stops in the middle of an epoch."""
        if self.agreed:
            control.should_evaluate = False
            control.should_save = self.save_is_due
        elif self._save_due:
            control.should_save = control.should_save or self.save_is_due

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """A checkpoint of this step was written, or could not be written."""
        if self._trainer.last_checkpoint != self._checkpoint:
            self._checkpoint, self._saved_step = self._trainer.last_checkpoint, state.global_step
            if (seconds := self._trainer.checkpoint_seconds) > LIMIT_SECONDS:
                self._trainer.say(
                    f"warning: the checkpoint took {seconds:.0f} s, and SageMaker kills a stopped job after 120 s: a "
                    "stop loses all steps since the last checkpoint; set save_minutes lower, or use an instance with a "
                    "faster disk"
                )
        self._saved_when = time.monotonic()
        self._save_due = False

    @property
    def save_is_due(self) -> bool:
        """Whether the job writes checkpoints and has trained steps since the last one."""
        return self._settings.training["save_strategy"] != "no" and self._state.global_step > self._saved_step

    @property
    def leaves_model(self) -> bool:
        """Whether to write the model. A stopped job writes it if at least one step is done, and either it was the last
        one or no uploaded checkpoint has all of them.
        """
        step, last = self._state.global_step, self._state.max_steps
        saved = self._settings.uploads_checkpoints and not self.save_is_due
        return not self.agreed or (step > 0 and (step >= last or not saved))

    def interrupted(self) -> bool:
        """Whether all ranks have agreed to stop. All ranks must call it, and get the same answer."""
        self._apply(self._agreement.exchange(self._request(0)))
        return self.agreed

    def check(self) -> None:
        """Raises AgreedStop on every rank if any rank has received a signal. Waits for all ranks."""
        self._apply(self._agreement.settle(self._request(0)))
        if self.agreed:
            raise AgreedStop

    def end(self, model: Path) -> None:
        """Raises JobStopped on every rank if the job was stopped; waits until rank 0 has written its files."""
        self._agreement.settle(RankRequest(0))  # end together: mpirun ends the other ranks soon after the first one
        if not self.agreed:
            return
        checkpoint = self._checkpoint if self._settings.keeps_checkpoints else None
        step, last = self._state.global_step, self._state.max_steps
        left = model if self.leaves_model else None
        uploaded = self._settings.uploads_checkpoints
        raise self._signal.stopped(stopped_where(step, last, left, checkpoint, uploaded=uploaded))

    def _request(self, batches_left: int) -> RankRequest:
        """This rank's requests now; `batches_left`: micro-batches left in the current step, 0 at its end."""
        now, mean = time.monotonic(), self._batches.mean_seconds
        request = RankRequest(0)
        if self._signal.number:
            request |= RankRequest.STOP
        waited = now - (self._signal.when or self._agreed_when)
        limit = step_seconds(self._trainer.checkpoint_seconds)
        if (self._signal.number or self.agreed) and overruns(waited, batches_left, mean, limit):
            request |= RankRequest.BREAK_OFF
        every = self._settings.save_seconds
        if every and self._trainer.rank.leads and now - self._saved_when >= every:
            self._saved_when = now
            request |= RankRequest.SAVE
        if mean > SLOW_SECONDS:
            request |= RankRequest.ANSWER_AT_ONCE
        return request

    def _apply(self, agreed: RankRequest) -> RankRequest:
        if RankRequest.STOP in agreed and not self.agreed:
            self.agreed, self._agreed_when = True, time.monotonic()
            self._trainer.say(f"stopping: received {self._signal.name()}, so the job saves its state and ends")
        self._save_due = self._save_due or RankRequest.SAVE in agreed
        self._answers_at_once = self._answers_at_once or RankRequest.ANSWER_AT_ONCE in agreed
        return agreed


class MicroBatches:
    """Counts the micro-batches of the current step, and measures their mean time, without saving and evaluation."""

    def __init__(self) -> None:
        self.in_step = 0
        self._begin = 0.0
        self._seconds = 0.0
        self._count = 0

    @property
    def mean_seconds(self) -> float:
        """The mean time of a micro-batch; 0 before the first."""
        return self._seconds / max(self._count, 1)

    def begin_step(self, now: float) -> None:
        """A step begins."""
        self.in_step, self._begin = 0, now

    def count(self, now: float) -> None:
        """A micro-batch is done."""
        self._seconds += now - self._begin
        self._begin = now
        self._count += 1
        self.in_step += 1


def step_seconds(checkpoint_seconds: float) -> float:
    """Seconds after the signal within which a step must end, so that a checkpoint of this duration is still in time."""
    return min(STEP_SECONDS, max(0.0, LIMIT_SECONDS - checkpoint_seconds))


def overruns(waited: float, batches_left: int, mean: float, limit: float) -> bool:
    """Whether the current step would end later than `limit` seconds after the signal.

    waited: seconds since the signal. batches_left: micro-batches left in the step, of `mean` seconds each.
    """
    return batches_left > 0 and waited + batches_left * mean > limit


def stopped_where(step: int, last: int, model: Path | None, checkpoint: Path | None, *, uploaded: bool) -> str:
    """The step that a stopped job reached, and where it will resume.

    model: the folder that it was written to, None if it was not. checkpoint: the newest one for a later job, which
    finds it for certain if SageMaker has `uploaded` it.
    """
    resumes = "if it is started again with the same checkpoint_s3_uri, the job resumes from"
    if model is None and checkpoint is None:
        return f"before the first of its {last} steps was done: start it again."
    if model is None:
        return f"at step {step} of {last}: all steps are saved; {resumes} {checkpoint}."
    if step >= last:
        return (
            f"after its {last} steps: the model is in {model}, but the evaluation and all else that follows is missing."
        )
    saved = f"at step {step} of {last}: the model of this step is in {model}"
    if checkpoint is not None and not uploaded:
        return f"{saved}; the job resumes from {checkpoint} if that still exists when it is started again."
    if checkpoint is not None:
        return f"{saved}, but its checkpoint could not be written; {resumes} {checkpoint}."
    return (
        f"{saved}, but the job has no checkpoint to resume from, and a spot interruption loses the training: give the "
        "estimator checkpoint_s3_uri."
    )
