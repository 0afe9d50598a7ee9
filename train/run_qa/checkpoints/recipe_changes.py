"""A training that goes on with another learning rate, schedule or length than its checkpoint: this job's are taken.

Trainer alone restores optimizer and scheduler with the old values, and after a raised `max_steps` the first step has
rate 0, because the old schedule was over. So the manifest records the values (`recipe`). If one differs, the optimizer
keeps only its moments, and the schedule is that of this job at the checkpoint's step.
"""

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainingArguments

from berth.train.run_qa.checkpoints.checkpoint_folder import Checkpoint
from berth.train.run_qa.checkpoints.choice import BEGIN_AGAIN, CheckpointError
from berth.train.run_qa.model import DROPOUTS
from berth.train.run_qa.recipe import MEASURING_SCHEDULERS

_NUMBERS = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm")
_SETTINGS = ("lr_scheduler_type", "lr_scheduler_kwargs", "fp16", "bf16", "optim", "optim_args")
_OPTIMIZER = ("optim", "optim_args")
"""Can't be changed: they decide what an optimizer's state holds."""
_OF_GROUP = ("initial_lr", "weight_decay", "betas", "eps")
"""Options of a parameter group that the recipe alone decides; some optimizers keep counters in other options."""
_MEASURED = ("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs")
"""What decides a schedule that follows the evaluations."""


class Change(NamedTuple):
    """A value of the checkpoint's recipe, and this job's."""

    name: str
    old: Any
    new: Any


def recipe(args: TrainingArguments, config: Any, steps: int) -> dict[str, Any]:
    """What decides the steps of a training besides its data, as JSON.

    config: the model's. steps: of the whole training. Warm-up is a number of steps here, also if a share was given.
    """
    found: dict[str, Any] = {name: float(getattr(args, name)) for name in _NUMBERS}
    found |= {name: _setting(args, name) for name in _SETTINGS}
    found["warmup_steps"] = args.get_warmup_steps(steps)
    found["max_steps"] = steps
    found["num_train_epochs"] = args.num_train_epochs if args.max_steps <= 0 else None
    for name, candidates in DROPOUTS.items():
        found[name] = next((getattr(config, each) for each in candidates if hasattr(config, each)), None)
    return found


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Every value of both that differs."""
    return [Change(name, old[name], value) for name, value in new.items() if name in old and old[name] != value]


def lines(old: Mapping[str, Any], new: Mapping[str, Any], step: int) -> list[str]:
    """Lines for the log of a training with the recipe `new` that goes on from `step` of one with the recipe `old`,
    which is empty if the checkpoint is Trainer's own.
    """
    if not old:
        return ["the checkpoint does not record its learning rate, schedule and the like: this job's are used"]
    said = []
    changed = changes(old, new)
    for name, before, now in changed:
        if name == "optim":
            said.append(f"optim: the checkpoint's {before} goes on, which is {now} in another implementation")
        else:
            said.append(f"{name}: {_text(before)} → {_text(now)} from step {step + 1} on")
    if new.get("lr_scheduler_type") in MEASURING_SCHEDULERS and {each.name for each in changed}.intersection(_MEASURED):
        said.append("the schedule follows the evaluations, and starts again from this job's learning_rate")
    return said


def check_optimizer(checkpoint: Checkpoint, args: TrainingArguments) -> None:
    """Raises CheckpointError where the checkpoint's optimizer is known to be another than this job's."""
    written = checkpoint.manifest.recipe if checkpoint.manifest else {}
    for name, before, now in changes(written, {name: _setting(args, name) for name in _OPTIMIZER}):
        if str(before).removesuffix("_fused") != str(now).removesuffix("_fused"):
            raise CheckpointError(
                f"The checkpoint {checkpoint.path} was written with {name} {_text(before)} and this job's is "
                f"{_text(now)}: an optimizer can't use another's state, so pass {name} {_text(before)}, or "
                f"{BEGIN_AGAIN}."
            )


def options(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The options of an optimizer's parameter groups, without the parameters."""
    return [{name: value for name, value in group.items() if name != "params"} for group in groups]


def take_options(groups: Sequence[MutableMapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> None:
    """Give the parameter groups of a restored optimizer the options of this job's `new` one."""
    for group, options_of_group in zip(groups, new, strict=True):
        group.update({name: options_of_group[name] for name in _OF_GROUP if name in options_of_group})


class SchedulerState:
    """Takes the scheduler's place while Trainer restores the optimizer, and keeps the state that Trainer reads."""

    def __init__(self) -> None:
        self.content: dict[str, Any] | None = None  # None: the checkpoint has none

    def load_state_dict(self, content: dict[str, Any]) -> None:
        self.content = content


def restore_schedule(
    scheduler: Any,
    optimizer: torch.optim.Optimizer,
    written: Mapping[str, Any],
    step: int,
    rates: Sequence[float],
    changed: Collection[str],
) -> None:
    """Set a new scheduler, and the rates of its optimizer, to where this job's schedule is at the checkpoint.

    written: the checkpoint's scheduler state. Its own count of steps is used, because it omits those that a gradient
    scaler skipped; `step`, the checkpoint's, if it followed the evaluations and counted those. A schedule that follows
    the evaluations keeps what it has measured unless its own settings `changed`; it then starts again from `rates`,
    those of the parameter groups of a new optimizer.
    """
    by_steps = "lr_lambdas" in written
    if isinstance(scheduler, LambdaLR):
        step = int(written["last_epoch"]) if by_steps else step
        bases = [float(base) for base in scheduler.base_lrs]
        rates = [base * factor(step) for base, factor in zip(bases, scheduler.lr_lambdas, strict=True)]
        place = {"last_epoch": step, "_step_count": step + 1, "_last_lr": rates}
        scheduler.load_state_dict({**scheduler.state_dict(), **place})
    elif not by_steps and not set(changed).intersection(_MEASURED):
        scheduler.load_state_dict(written)
        return
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


def _setting(args: TrainingArguments, name: str) -> Any:
    value = getattr(args, name, None)
    return getattr(value, "value", value) or (None if value in ("", {}) else value)


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
