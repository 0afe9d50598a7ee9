"""transformers' Trainer, adapted to question answering on several ranks.

Four things differ from the original: the order of windows is a pure function of seed and epoch, the loss ignores
padding, evaluation measures exact match and F1 on whole questions, and the log has whole lines (reporting/).
checkpoints/saving.py writes the checkpoints. `EpochCallback` keeps the order of windows when a job resumes in the
middle of an epoch.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from berth.train.run_qa.agreement import AgreedStop
from berth.train.run_qa.checkpoints import identity
from berth.train.run_qa.checkpoints.saving import CheckpointTrainer
from berth.train.run_qa.evaluation import Evaluator
from berth.train.run_qa.inputs.features import OrderSampler, QuestionSet, WindowDataset, grouped_order
from berth.train.run_qa.model import Loaded
from berth.train.run_qa.ranks import check_wrapped
from berth.train.run_qa.reporting import event_files, report
from berth.train.run_qa.reporting.trace import TraceCallback
from berth.train.run_qa.stopping import Stopping


class EpochCallback(TrainerCallback):
    """Tells the sampler the number of each epoch before it begins.

    A job that resumes in the middle of an epoch uses a loader that skips the finished batches. On several ranks its
    set_epoch does not reach the sampler (accelerate 1.15: SkipBatchSampler around BatchSamplerShard). The rest of the
    epoch would then have the order of epoch 0, with some questions twice and others never.
    """

    def on_epoch_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **others: Any,
    ) -> None:
        """`train_dataloader` is the loader of all batches. The sampler makes the order later, at the first batch."""
        train_dataloader.set_epoch(int(state.epoch or 0))


def span_loss(
    start_logits: torch.Tensor,
    end_logits: torch.Tensor,
    attention_mask: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
) -> torch.Tensor:
    """Mean of the cross entropies of start and end: logits and mask (batch, width), labels (batch,).

    The models' own loss counts padding as possible answers, so it depends on the other rows of the batch. Several ranks
    would then get a different gradient from one process with the joint batch.
    """
    padding = attention_mask == 0
    losses = [
        torch.nn.functional.cross_entropy(logits.float().masked_fill(padding, float("-inf")), label)
        for logits, label in ((start_logits, start), (end_logits, end))
    ]
    return (losses[0] + losses[1]) / 2


class QuestionAnsweringTrainer(CheckpointTrainer):
    """Trains on windows and evaluates on questions."""

    def __init__(
        self,
        *,
        loaded: Loaded,
        args: TrainingArguments,
        evaluator: Evaluator,
        train_dataset: WindowDataset | None,
        questions: QuestionSet | None,
    ) -> None:
        self.lines = evaluator.lines
        self.rank, self.say = self.lines.rank, self.lines.say
        # Trainer requires an evaluation set to evaluate during training; `evaluate` below uses `questions`.
        eval_dataset = WindowDataset(questions.windows) if questions else None
        super().__init__(
            model=loaded.model,
            args=args,
            data_collator=evaluator.collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=loaded.tokenizer,
            callbacks=[EpochCallback(), self.lines],
        )
        self.remove_callback(PrinterCallback)
        event_files.keep_apart(self.callback_handler.callbacks)
        self.evaluator = evaluator
        self.questions = questions
        # The callback that decides when to save and stop; set before the first step or question.
        self.stopping: Stopping
        # The callback that profiles some steps.
        self.trace: TraceCallback | None = None

    @property
    def sharded(self) -> bool:
        """Whether no rank holds the whole model (FSDP)."""
        return bool(self.is_fsdp_enabled)

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler[int] | None:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if not isinstance(dataset, WindowDataset) or not (order := self._order(dataset)):
            return super()._get_train_sampler(train_dataset)
        whole, rest = divmod(len(dataset), self.windows_per_batch)
        return OrderSampler(order, self.windows_per_batch * (whole + (rest > 0 and not self.args.dataloader_drop_last)))

    def _order(self, dataset: WindowDataset) -> Callable[[int], np.ndarray] | None:
        """A function from an epoch to the order of all windows; None if Trainer makes the order."""
        group, seed = self.windows_per_batch * self.args.gradient_accumulation_steps, self._order_seed
        orders: dict[str, Callable[[int], np.ndarray]] = {
            "group_by_length": lambda epoch: grouped_order(dataset.lengths, group, seed, epoch),
            "random": lambda epoch: np.random.default_rng([seed, epoch]).permutation(len(dataset)),
            "sequential": lambda epoch: np.arange(len(dataset)),
        }
        return orders.get(self.args.train_sampling_strategy)

    def identity(self, loaded: Loaded) -> dict[str, str]:
        """The digests of model, weights and data; all ranks must call it."""
        assert isinstance(self.train_dataset, WindowDataset)
        order = [self.args.train_sampling_strategy, self._order_seed, self.args.dataloader_drop_last]
        return identity.digest_training(loaded, self.train_dataset, order, self.rank)

    @property
    def _order_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _run_epoch(self, *arguments: Any, **named: Any) -> None:
        """Skip the epoch if no step is left: Trainer would train one more from a mid-epoch checkpoint (5.23)."""
        if not self.lines.nothing_left:
            super()._run_epoch(*arguments, **named)  # type: ignore[no-untyped-call]

    def _maybe_log_save_evaluate(self, tr_loss: torch.Tensor, *arguments: Any, **named: Any) -> None:
        """Like Trainer's, except: after an interrupted evaluation the checkpoint is still written, and a NaN loss does
        not stay in the sum of the following ones (Trainer resets the sum with `-=`, and NaN minus NaN is NaN).
        """
        try:
            super()._maybe_log_save_evaluate(tr_loss, *arguments, **named)
        except AgreedStop:
            self.control.should_training_stop = True
            self.control.should_evaluate = self.control.should_log = False
            self.control.should_save = self.stopping.save_is_due
            super()._maybe_log_save_evaluate(tr_loss, *arguments, **named)
        if self._globalstep_last_logged == self.state.global_step:
            tr_loss.nan_to_num_()

    def _load_best_model(self) -> None:
        """Trainer's, at the end of a training; a stopped training keeps its current weights, to resume from them."""
        if not self.stopping.agreed:
            super()._load_best_model()

    def get_batch_samples(self, *arguments: Any, **named: Any) -> Any:
        """Trainer's, which fetches all batches of a step; a trace of the step begins here."""
        with self.trace.fetching(self.state.global_step + 1) if self.trace else nullcontext():
            return super().get_batch_samples(*arguments, **named)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: Any = None,
        num_items_in_batch: Any = None,
    ) -> Any:
        """`span_loss` instead of the model's own loss; Trainer passes the parameters by position."""
        labels = inputs["start_positions"], inputs["end_positions"]
        output = model(**{name: value for name, value in inputs.items() if not name.endswith("_positions")})
        loss = span_loss(output.start_logits, output.end_logits, inputs["attention_mask"], *labels)
        return (loss, output) if return_outputs else loss

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *others: Any) -> torch.Tensor:
        """Trainer's, and count the batch and its loss. `model` is wrapped for several ranks, or it must not train."""
        check_wrapped(self.rank, model)
        loss: torch.Tensor = super().training_step(model, inputs, *others)
        self.lines.meter.count(inputs["attention_mask"], loss)
        return loss

    def log(self, logs: dict[str, float], *others: Any) -> None:
        """Trainer's, with the speed added to each entry that has a loss."""
        if "loss" in logs:
            logs |= self.lines.logged(self.state.global_step)
        super().log(logs, *others)

    def _save_checkpoint(self, *arguments: Any) -> None:
        with self.lines.clock.during("saving"):
            super()._save_checkpoint(*arguments)

    def answer(self, questions: QuestionSet) -> tuple[dict[str, float], dict[str, str]]:
        """Scores and predictions (see Evaluator.run) with the current weights; all ranks must call it."""
        model = self.model
        if not self.is_in_train:
            kind = torch.float16 if self.args.fp16_full_eval else torch.bfloat16 if self.args.bf16_full_eval else None
            model = model.to(device=self.args.device, dtype=kind)
        autocast = self.accelerator.autocast
        return self.evaluator.run(model, self.args.device, questions, autocast, self.stopping.interrupted)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Return the scores of the job's questions on every rank, named `eval_f1` and so on, and log them."""
        assert self.questions is not None
        began = time.monotonic()
        figures, self.predictions = self.answer(self.questions)
        seconds = time.monotonic() - began
        scores = {f"{metric_key_prefix}_{name}": value for name, value in figures.items()}
        scores[f"{metric_key_prefix}_runtime"] = round(seconds, 4)
        scores[f"{metric_key_prefix}_samples_per_second"] = round(len(self.questions.examples) / seconds, 3)
        if self.rank.leads:
            for name, value in figures.items():
                if name.startswith(("HasAns", "NoAns")):
                    report.say(f"{name}: {report.number(value)}")
            for name in ("loss", "exact_match", "f1"):
                report.metric(f"{metric_key_prefix}_{name}", figures[name])
        self.log(scores)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, scores)
        return scores
