"""Resumes a training with this job's learning rate, schedule and length, if they differ from the checkpoint's.

Trainer alone would restore optimizer and scheduler with the old values. With a higher `max_steps` the first step would
have rate 0, because the old schedule was over. So the manifest records the values (`recipe`). The optimizer keeps its
state but gets this job's options, and the schedule is set to this job's at the checkpoint's step.
"""

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainingArguments

from berth.contract.errors import JobError
from berth.train.run_qa.checkpoints.checkpoint_folder import Checkpoint
from berth.train.run_qa.checkpoints.choice import BEGIN_AGAIN
from berth.train.run_qa.model import DROPOUTS
from berth.train.run_qa.recipe import MEASURING_SCHEDULERS

_NUMBERS = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm")
_SETTINGS = ("lr_scheduler_type", "lr_scheduler_kwargs", "fp16", "bf16", "optim", "optim_args")
_OPTIMIZER = ("optim", "optim_args")
"""Can't be changed: the optimizer's state depends on them."""
_GROUP_OPTIONS = ("initial_lr", "weight_decay", "betas", "eps")
"""Options of a parameter group that only the recipe sets; some optimizers keep counters in the other options."""
_MEASURED = ("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs")
"""The settings of a schedule that follows the evaluations."""


def recipe(args: TrainingArguments, config: Any, steps: int) -> dict[str, Any]:
    """The settings, except the data, that a training's steps depend on, as JSON.

    config: the model's. steps: of the whole training. Warm-up is recorded as steps, even if it was given as a fraction.
    """
    values: dict[str, Any] = {name: float(getattr(args, name)) for name in _NUMBERS}
    values |= {name: _setting(args, name) for name in _SETTINGS}
    values["warmup_steps"] = args.get_warmup_steps(steps)
    values["max_steps"] = steps
    values["num_train_epochs"] = args.num_train_epochs if args.max_steps <= 0 else None
    for name, candidates in DROPOUTS.items():
        values[name] = next((getattr(config, each) for each in candidates if hasattr(config, each)), None)
    return values


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The names of the settings that are in both recipes and differ."""
    return [name for name, value in new.items() if name in old and old[name] != value]


def lines(old: Mapping[str, Any], new: Mapping[str, Any], step: int) -> list[str]:
    """Log lines about the changes from the checkpoint's recipe `old` to this job's `new`; `step` is the checkpoint's.

    `old` is empty if the checkpoint is Trainer's.
    """
    if not old:
        return ["the checkpoint does not record its learning rate, schedule and so on: this job's are used"]
    messages = []
    changed = changes(old, new)
    for name in changed:
        if name == "optim":
            messages.append(
                f"optim: continues with the checkpoint's {old[name]}, another implementation of {new[name]}"
            )
        else:
            messages.append(f"{name}: {_text(old[name])} → {_text(new[name])} from step {step + 1} on")
    if new.get("lr_scheduler_type") in MEASURING_SCHEDULERS and set(changed).intersection(_MEASURED):
        messages.append("the schedule follows the evaluations, and starts again from this job's learning_rate")
    return messages


def check_optimizer(checkpoint: Checkpoint, args: TrainingArguments) -> None:
    """Raises JobError if the checkpoint records another optimizer than this job's."""
    written = checkpoint.manifest.recipe if checkpoint.manifest else {}
    mine = {name: _setting(args, name) for name in _OPTIMIZER}
    for name in changes(written, mine):
        before, now = written[name], mine[name]
        if str(before).removesuffix("_fused") != str(now).removesuffix("_fused"):
            raise JobError(
                f"The checkpoint {checkpoint.path} was written with {name} {_text(before)} and this job's is "
                f"{_text(now)}: an optimizer can't use another's state, so pass {name} {_text(before)}, or "
                f"{BEGIN_AGAIN}."
            )


def take_options(groups: Sequence[MutableMapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> None:
    """Give the parameter groups of a restored optimizer the options of this job's `new` one."""
    for group, options_of_group in zip(groups, new, strict=True):
        group.update({name: options_of_group[name] for name in _GROUP_OPTIONS if name in options_of_group})


class SchedulerState:
    """Replaces the scheduler while Trainer restores the optimizer, and keeps the scheduler state that Trainer reads."""

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
    """Advance a new scheduler, and the learning rates of its optimizer, to the checkpoint's step.

    written: the checkpoint's scheduler state. The step is the one that this state counted, because it omits steps that
    a gradient scaler skipped; if it counted evaluations instead, it is the checkpoint's `step`. A schedule that follows
    the evaluations keeps its state unless its own settings are among the `changed` ones. Then it starts again from
    `rates`, the learning rates of a new optimizer's parameter groups.
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
