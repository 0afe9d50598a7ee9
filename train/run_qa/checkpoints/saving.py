"""Trainer with checkpoints that are whole or not there, and that another number of ranks can go on from.

Trainer itself writes the files, into a folder aside (checkpoint_folder.py); rank 0 gives them the random states of all
ranks, a manifest, and their name. Where weights are spread over ranks by accelerate, each of these writes its own part.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer

from berth.runtime.rank import Rank
from berth.runtime.software import kit_version
from berth.train.run_qa import ranks
from berth.train.run_qa.checkpoints import checkpoint_folder, manifest, random_states, recipe_changes
from berth.train.run_qa.checkpoints.choice import Start, of_another
from berth.train.run_qa.checkpoints.manifest import CheckpointManifest

RANDOM_STATES = "random_states.json"
_OF_RUST = " (os error "


@dataclass(slots=True)
class _Saving:
    """One checkpoint while it is written: its name, the folder aside, and what went wrong first."""

    target: Path
    aside: Path
    fault: str = ""

    def written(self, step: int) -> Path:
        """Where Trainer puts the files."""
        return self.aside / f"checkpoint-{step}"


class CheckpointTrainer(Trainer):
    """Sets `last_checkpoint`, the newest whole one (None: none yet). What can't be written is warned of, and
    the training goes on: hours of it are worth more than the checkpoint, and its end is written elsewhere.
    """

    rank: Rank
    say: Callable[[str], None]
    last_checkpoint: Path | None = None
    checkpoint_seconds = 0.0  # that the newest took
    _saving: _Saving | None = None
    _known: tuple[Path, ...] = ()
    _sequence = 0
    _identity: Mapping[str, str] = {}
    _resumed_recipe: Mapping[str, Any] = {}
    _job = ""
    _limit: int | None = None

    def begin(self, start: Start, identity: Mapping[str, str]) -> None:
        """Take over what the checkpoint folder holds, and clear away what is none; after the identities were compared.

        All ranks must call it before `train`. One rank of each host deletes, and only what was there at the start.
        """
        if start.chosen:
            recipe_changes.check_optimizer(start.chosen, self.args)
        listing, self._identity, self._job = start.listing, identity, start.job
        # At the end of its loop Trainer itself would delete what is not the best of two, as what a stop has just saved.
        self._limit, self.args.save_total_limit = self.args.save_total_limit, None
        self._known = tuple(each.path for each in listing.whole if each.manifest)
        self._sequence = max(ranks.gather(listing.sequence, self.rank))
        if start.chosen:
            self.last_checkpoint = start.chosen.path
            if start.chosen.manifest:
                self._resumed_recipe = start.chosen.manifest.recipe
        if self.rank.local_rank == 0:
            checkpoint_folder.remove([*listing.torn, *listing.aside])

    def _init_training_state(self, max_steps: int, *arguments: Any, **named: Any) -> Any:
        """Trainer's own, but that how often it saves, logs and evaluates is what this job says, not its checkpoint."""
        found = super()._init_training_state(max_steps, *arguments, **named)
        self.state.compute_steps(self.args, max_steps)
        gone = self.state.best_metric is not None and self.state.best_model_checkpoint is None
        if self.args.load_best_model_at_end and ranks.from_leader(gone, self.rank):
            self.say(
                f"warning: the checkpoint of the best model so far (step {self.state.best_global_step}) is not there "
                "any more: the best of what is trained from here on will be the model"
            )
            self.state.best_metric = self.state.best_global_step = None
        return found

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Trainer's own, but this job's recipe is used where it is not the checkpoint's (recipe_changes.py)."""
        if checkpoint is None or self.is_deepspeed_enabled:  # DeepSpeed restores both by itself, with the model
            super()._load_optimizer_and_scheduler(checkpoint)
            if changed := recipe_changes.changes(self._resumed_recipe, self._recipe()):
                names = ", ".join(change.name for change in changed)
                self.say(f"warning: DeepSpeed may go on with the checkpoint's values of what changed: {names}")
            return
        assert self.optimizer is not None
        fresh = recipe_changes.options(self.optimizer.param_groups)
        scheduler: Any = self.lr_scheduler
        written: Any = recipe_changes.SchedulerState()
        self.lr_scheduler = written
        try:
            super()._load_optimizer_and_scheduler(checkpoint)
        finally:
            self.lr_scheduler = scheduler
        if written.content is None:
            return
        groups = self.optimizer.param_groups
        if self.optimizer.defaults.keys() - groups[0].keys():
            raise of_another(checkpoint)
        old, new, step = self._resumed_recipe, self._recipe(), self.state.global_step
        for line in recipe_changes.lines(old, new, step) if step < self.state.max_steps else []:
            self.say(line)
        recipe_changes.take_options(groups, fresh)
        rates = [group["lr"] for group in fresh]
        names_changed = [change.name for change in recipe_changes.changes(old, new)]
        recipe_changes.restore_schedule(scheduler, self.optimizer, written.content, step, rates, names_changed)

    def _recipe(self) -> dict[str, Any]:
        return recipe_changes.recipe(self.args, getattr(self.model, "config", None), self.state.max_steps)

    @property
    def windows_at_once(self) -> int:
        """How many windows all ranks take at once; `gradient_accumulation_steps` times so many are a step."""
        return self._train_batch_size * self.rank.world_size

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._saving.aside) if self._saving else super()._get_output_dir(trial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint; all ranks must come here at the same step, and all learn how it ended."""
        began, step = time.monotonic(), self.state.global_step
        folder = Path(super()._get_output_dir(trial))
        name = ranks.from_leader(checkpoint_folder.new_name(step), self.rank)
        best = self.state.best_model_checkpoint
        saving = _Saving(folder / name, checkpoint_folder.aside_of(folder, name))
        self._saving = saving
        try:
            with self._noting_faults():
                super()._save_checkpoint(model, trial)
        finally:
            self._saving = None
        # Trainer has noted the folder aside.
        is_best = bool(self.state.best_global_step) and self.state.best_global_step == step
        self.state.best_model_checkpoint = str(saving.target) if is_best else best
        if not self._first_fault(saving) and self.rank.leads:
            self._complete(saving)
        if fault := self._first_fault(saving):
            self.state.best_model_checkpoint = best
            checkpoint_folder.remove([saving.aside])
            self.say(
                f"warning: no checkpoint of step {step} could be written into {folder} ({fault}): the training goes on "
                "without it; free space there, or make it writable, or keep fewer by save_total_limit"
                + (
                    "; the best model will be that of another step"
                    if is_best and self.args.load_best_model_at_end
                    else ""
                )
            )
            return
        if self.rank.local_rank == 0 and saving.aside.is_dir():
            self._complete(saving)  # weights spread by accelerate: a host with a disk of its own holds the rest
        if is_best and not saving.target.is_dir():
            self.state.best_model_checkpoint = best
        self.last_checkpoint = saving.target
        self._keep_newest(saving.target)
        self.checkpoint_seconds = time.monotonic() - began
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(saving.target))

    def _complete(self, saving: _Saving) -> None:
        step = self.state.global_step
        written = saving.written(step)
        self._sequence += 1
        with _noting_in(saving):
            self.state.save_to_json(str(written / checkpoint_folder.STATE))  # with the name that it gets
            content = CheckpointManifest(
                step=step,
                sequence=self._sequence,
                ranks=self.rank.world_size,
                per_device_batch=self._train_batch_size,
                accumulation=self.args.gradient_accumulation_steps,
                resumable=not self.args.save_only_model,
                identity=self._identity,
                recipe=self._recipe(),
                kit=kit_version(),
                job=self._job,
                files=manifest.files_of(written),
            )
            checkpoint_folder.complete(written, saving.target, content)

    def _keep_newest(self, newest: Path) -> None:
        """Delete older ones beyond save_total_limit, by one rank of each host."""
        if self.rank.local_rank:
            return
        best = self.state.best_model_checkpoint
        known = [*self._known, newest]
        gone = checkpoint_folder.superfluous(known, self._limit, Path(best) if best else None)
        checkpoint_folder.remove(gone)
        self._known = tuple(path for path in known if path not in gone)

    def _first_fault(self, saving: _Saving) -> str:
        """What went wrong on any rank; all must call it."""
        return next(filter(None, ranks.gather(saving.fault, self.rank)), "")

    @contextmanager
    def _noting_faults(self) -> Iterator[None]:
        """A disk that is full must not end this rank while others wait for it in Trainer's next collective."""
        if self._saving is None:
            yield
            return
        with _noting_in(self._saving):
            yield

    def save_model(self, *arguments: Any, **named: Any) -> None:
        """Trainer's; of a checkpoint, its faults are noted."""
        with self._noting_faults():
            super().save_model(*arguments, **named)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        with self._noting_faults():
            super()._save_optimizer_and_scheduler(output_dir)

    def _save_scaler(self, output_dir: str) -> None:
        with self._noting_faults():
            super()._save_scaler(output_dir)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Trainer uploads in the background, so from the folder that stays."""
        if self._saving is None:
            super()._push_from_checkpoint(checkpoint_folder)

    def _save_rng_state(self, output_dir: str) -> None:
        everyone = ranks.gather_to_leader(random_states.current(), self.rank)
        with self._noting_faults():
            if everyone:
                (Path(output_dir) / RANDOM_STATES).write_text(json.dumps(everyone), encoding="utf-8")

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Trainer calls it right before the first step. Other ranks' states fit nobody."""
        if checkpoint and isinstance(self.model_wrapped, DistributedDataParallel):
            self._arrange_gradients()
        path = Path(checkpoint or "") / RANDOM_STATES
        if not path.is_file():
            super()._load_rng_state(checkpoint)
            return
        everyone = json.loads(path.read_text(encoding="utf-8"))
        if len(everyone) == self.rank.world_size:
            random_states.restore(everyone[self.rank.rank])

    def _arrange_gradients(self) -> None:
        """One backward pass for nothing, after which DDP puts gradients together as in all steps but a job's first.

        In another arrangement three ranks or more add them up in another order, and Adam makes steps of the rounding
        (torch's Reducer: rebuild_buckets after the first backward).
        """
        assert self.train_dataset is not None
        inputs = self._prepare_inputs(self.data_collator([self.train_dataset[0]]))
        self.model_wrapped.train()
        with self.compute_loss_context_manager():
            loss: Any = super().compute_loss(self.model_wrapped, inputs)  # the model's own, which no line counts
        loss.backward()
        self.model_wrapped.zero_grad()


@contextmanager
def _noting_in(saving: _Saving) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not (is_write_error(error) or isinstance(error, RuntimeError)):  # torch's own writer raises that
            raise
        saving.fault = saving.fault or cause(error)


def is_write_error(error: Exception) -> bool:
    """Whether it is what a disk that is full, or read-only, makes of writing a model, or a tokenizer, whose library
    raises a bare Exception (tokenizers 0.23: `No space left on device (os error 28)`).
    """
    return isinstance(error, (OSError, SafetensorError)) or (type(error) is Exception and _OF_RUST in str(error))


def cause(error: Exception) -> str:
    """Why a file could not be written, in a few words."""
    text = error.strerror if isinstance(error, OSError) else None
    if "inline_container" in str(error):  # torch's writer counts bytes, and knows no more
        text = "a file was cut off, as on a disk that is full"
    return text or str(error).partition("\n")[0].partition(_OF_RUST)[0] or type(error).__name__
