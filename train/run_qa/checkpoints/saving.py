"""Trainer with checkpoints that are either whole or missing, and that another number of ranks can resume from.

Trainer writes the files into a temporary folder (checkpoint_folder.py). Rank 0 adds the random states of all ranks and
a manifest, and renames the folder. If accelerate shards the weights, each rank writes its own part.
"""

import json
import secrets
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
from berth.train.run_qa.checkpoints.choice import Start, mismatch_error
from berth.train.run_qa.checkpoints.manifest import CheckpointManifest

RANDOM_STATES = "random_states.json"
_RUST_OS_ERROR = " (os error "


@dataclass(slots=True)
class _Saving:
    """A checkpoint that is being written: its final path, its temporary folder, and its first fault."""

    target: Path
    partial: Path
    fault: str = ""


class CheckpointTrainer(Trainer):
    """Sets `last_checkpoint`, the newest whole one (None: none yet).

    If a checkpoint can't be written, the training continues with a warning: hours of training are worth more than a
    checkpoint, and the model at the end is written to another folder.
    """

    model: Any  # without DDP around it
    rank: Rank
    say: Callable[[str], None]
    last_checkpoint: Path | None = None
    checkpoint_seconds = 0.0  # the time that the newest took to write
    _saving: _Saving | None = None
    _known: tuple[Path, ...] = ()
    _sequence = 0
    _identity: Mapping[str, str] = {}
    _resumed_recipe: Mapping[str, Any] = {}
    _job = ""
    _limit: int | None = None

    def begin(self, start: Start, identity: Mapping[str, str]) -> None:
        """Resume from the chosen checkpoint, and delete incomplete ones; call it after `choice.check_identity`.

        All ranks must call it before `train`. One rank per host deletes, and only folders that existed at the start.
        """
        if start.chosen:
            recipe_changes.check_optimizer(start.chosen, self.args)
            self.last_checkpoint = start.chosen.path
            self._resumed_recipe = start.chosen.manifest.recipe if start.chosen.manifest else {}
        listing, self._identity, self._job = start.listing, identity, start.job
        # With a limit of 1, Trainer would delete all but the best at the end, even the one that a stop just saved.
        self._limit, self.args.save_total_limit = self.args.save_total_limit, None
        self._known = tuple(each.path for each in listing.whole if each.manifest)
        self._sequence = max(ranks.gather(listing.sequence, self.rank))
        if self.rank.local_rank == 0:
            checkpoint_folder.remove([*listing.incomplete, *listing.partial])

    def _init_training_state(self, max_steps: int, *arguments: Any, **named: Any) -> Any:
        """Trainer's, but with this job's intervals of saving, logging and evaluation, not the checkpoint's."""
        result = super()._init_training_state(max_steps, *arguments, **named)
        self.state.compute_steps(self.args, max_steps)
        missing = self.state.best_metric is not None and self.state.best_model_checkpoint is None
        if self.args.load_best_model_at_end and ranks.from_leader(missing, self.rank):
            self.say(
                f"warning: the checkpoint of the best model so far (step {self.state.best_global_step}) no longer "
                "exists: the model will be the best one from here on"
            )
            self.state.best_metric = self.state.best_global_step = None
        return result

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Trainer's, but with this job's recipe if the checkpoint's differs (recipe_changes.py)."""
        if checkpoint is None:
            super()._load_optimizer_and_scheduler(checkpoint)
            return
        assert self.optimizer is not None
        fresh = [dict(group) for group in self.optimizer.param_groups]
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
            raise mismatch_error(checkpoint)
        old, new, step = self._resumed_recipe, self._recipe(), self.state.global_step
        for line in recipe_changes.lines(old, new, step) if step < self.state.max_steps else []:
            self.say(line)
        recipe_changes.take_options(groups, fresh)
        rates = [group["lr"] for group in fresh]
        changed = recipe_changes.changes(old, new)
        recipe_changes.restore_schedule(scheduler, self.optimizer, written.content, step, rates, changed)

    def _recipe(self) -> dict[str, Any]:
        return recipe_changes.recipe(self.args, getattr(self.model, "config", None), self.state.max_steps)

    @property
    def windows_per_batch(self) -> int:
        """Windows per micro-batch on all ranks together; a step has `gradient_accumulation_steps` micro-batches."""
        return self._train_batch_size * self.rank.world_size

    def _get_output_dir(self, trial: Any) -> str:
        return str(self._saving.partial) if self._saving else super()._get_output_dir(trial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint. All ranks must call it at the same step, and all learn whether it succeeded."""
        began, step = time.monotonic(), self.state.global_step
        folder = Path(super()._get_output_dir(trial))
        suffix = ranks.from_leader(secrets.token_hex(4), self.rank)
        best = self.state.best_model_checkpoint
        saving = _Saving(folder / f"checkpoint-{step}-{suffix}", folder / f"{checkpoint_folder.PARTIAL}{suffix}")
        self._saving = saving
        try:
            with _recording_faults(saving):
                super()._save_checkpoint(model, trial)
        finally:
            self._saving = None
        # Trainer recorded the temporary folder in best_model_checkpoint.
        is_best = bool(self.state.best_global_step) and self.state.best_global_step == step
        self.state.best_model_checkpoint = str(saving.target) if is_best else best
        if not self._first_fault(saving) and self.rank.leads:
            self._complete(saving)
        if fault := self._first_fault(saving):
            self.state.best_model_checkpoint = best
            checkpoint_folder.remove([saving.partial])
            self.say(
                f"warning: no checkpoint of step {step} could be written into {folder} ({fault}): the training "
                "continues without it; free space there, make it writable, or keep fewer checkpoints (save_total_limit)"
                + (
                    "; the best model will be that of another step"
                    if is_best and self.args.load_best_model_at_end
                    else ""
                )
            )
            return
        if self.rank.local_rank == 0 and saving.partial.is_dir():
            self._complete(saving)  # sharded weights on a host with its own disk: complete this host's part
        if is_best and not saving.target.is_dir():
            self.state.best_model_checkpoint = best
        self.last_checkpoint = saving.target
        self._keep_newest(saving.target)
        self.checkpoint_seconds = time.monotonic() - began
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(saving.target))

    def _complete(self, saving: _Saving) -> None:
        step = self.state.global_step
        written = saving.partial / f"checkpoint-{step}"  # the folder that Trainer writes to
        self._sequence += 1
        with _recording_faults(saving):
            self.state.save_to_json(str(written / checkpoint_folder.STATE))  # again, with the final path
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
                files=manifest.hash_files(written),
            )
            checkpoint_folder.complete(written, saving.target, content)

    def _keep_newest(self, newest: Path) -> None:
        """Delete older checkpoints beyond save_total_limit, on one rank per host."""
        if self.rank.local_rank:
            return
        best = self.state.best_model_checkpoint
        known = [*self._known, newest]
        removed = checkpoint_folder.to_prune(known, self._limit, Path(best) if best else None)
        checkpoint_folder.remove(removed)
        self._known = tuple(path for path in known if path not in removed)

    def _first_fault(self, saving: _Saving) -> str:
        """The fault of the first rank that has one; empty if none has. All ranks must call it."""
        return next(filter(None, ranks.gather(saving.fault, self.rank)), "")

    def save_model(self, *arguments: Any, **named: Any) -> None:
        """Trainer's; while a checkpoint is written, write errors are recorded."""
        with _recording_faults(self._saving):
            super().save_model(*arguments, **named)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        with _recording_faults(self._saving):
            super()._save_optimizer_and_scheduler(output_dir)

    def _save_scaler(self, output_dir: str) -> None:
        with _recording_faults(self._saving):
            super()._save_scaler(output_dir)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Skip it while the checkpoint is in its temporary folder: Trainer uploads in the background."""
        if self._saving is None:
            super()._push_from_checkpoint(checkpoint_folder)

    def _save_rng_state(self, output_dir: str) -> None:
        everyone = ranks.gather(random_states.current(), self.rank)
        with _recording_faults(self._saving):
            if self.rank.leads:
                (Path(output_dir) / RANDOM_STATES).write_text(json.dumps(everyone), encoding="utf-8")

    def _load_rng_state(self, checkpoint: str | None) -> None:
        """Trainer calls it right before the first step. With another number of ranks no states are restored."""
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
        """Run one throwaway backward pass: DDP rebuilds its buckets after the first one, and the resumed job must use
        the rebuilt order (torch's Reducer: rebuild_buckets).

        With other buckets three or more ranks would add the gradients in another order, and Adam turns the rounding
        errors into steps.
        """
        assert self.train_dataset is not None
        inputs = self._prepare_inputs(self.data_collator([self.train_dataset[0]]))
        self.model_wrapped.train()
        with self.compute_loss_context_manager():
            loss: Any = super().compute_loss(self.model_wrapped, inputs)  # the model's loss, not counted in the log
        loss.backward()
        self.model_wrapped.zero_grad()


@contextmanager
def _recording_faults(saving: _Saving | None) -> Iterator[None]:
    """While a checkpoint is written, record write errors: a full disk must not end this rank while others wait in
    Trainer's next collective.
    """
    try:
        yield
    except Exception as error:
        # torch's file writer raises RuntimeError.
        if saving is None or not (is_write_error(error) or isinstance(error, RuntimeError)):
            raise
        saving.fault = saving.fault or write_error_text(error)


def is_write_error(error: Exception) -> bool:
    """Whether writing a model or tokenizer failed because of the disk: full, read-only and so on.

    The tokenizer's library raises a bare Exception (tokenizers 0.23: `No space left on device (os error 28)`).
    """
    return isinstance(error, (OSError, SafetensorError)) or (type(error) is Exception and _RUST_OS_ERROR in str(error))


def write_error_text(error: Exception) -> str:
    """Why a file could not be written, in a few words."""
    text = error.strerror if isinstance(error, OSError) else None
    if "inline_container" in str(error):  # torch's writer only compares byte counts
        text = "a file was cut off, as on a full disk"
    return text or str(error).partition("\n")[0].partition(_RUST_OS_ERROR)[0] or type(error).__name__
