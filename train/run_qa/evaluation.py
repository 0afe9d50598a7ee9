"""Answers a set of questions on all ranks together, and measures exact match and F1.

Each rank computes its share of the batches; rank 0 gathers the logits, decodes and scores them. Every window counts
once: samplers of distributed loaders would repeat some to fill the last batch, which would falsify the metrics.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from berth.qa import metrics
from berth.qa.spans import Decoding, predict
from berth.qa.windows import Window
from berth.train.run_qa.agreement import AgreedStop
from berth.train.run_qa.inputs.features import Collator, QuestionSet, WindowDataset
from berth.train.run_qa.ranks import from_leader, gather, gather_floats
from berth.train.run_qa.reporting.progress import LineCallback


@dataclass(frozen=True, slots=True)
class Evaluator:
    """The settings of an evaluation, the same for every question set of a job."""

    collator: Collator
    decoding: Decoding
    batch_size: int
    lines: LineCallback

    def run(
        self,
        model: torch.nn.Module,
        device: torch.device,
        questions: QuestionSet,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Answer and score the questions; all ranks must call it. The model's mode (train, eval) is restored.

        Returns the scores, and the predictions (id → text; on rank 0 only, elsewhere empty).
        `interrupted` is called after every batch and must return the same on all ranks. Raises AgreedStop if it is
        true.
        """
        with self.lines.clock.during("evaluation"):
            was_training = model.training
            model.eval()
            try:
                mine = self._logits(model, device, questions.windows, autocast, interrupted)
            finally:
                model.train(was_training)
            indices, logits = gather(list(mine), self.lines.rank), gather_floats(_flat(mine), self.lines.rank)
            scores: dict[str, float] = {}
            predictions: dict[str, str] = {}
            if self.lines.rank.leads:
                start, end = _by_window(indices, logits, WindowDataset(questions.windows).lengths)
                scores, predictions = self._measure(questions, start, end)
            return from_leader(scores, self.lines.rank), predictions

    def _logits(
        self,
        model: torch.nn.Module,
        device: torch.device,
        windows: Sequence[Window],
        autocast: Callable[[], AbstractContextManager[Any]],
        interrupted: Callable[[], bool],
    ) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Start and end logits (tokens,) of this rank's windows, by the window's index."""
        dataset = WindowDataset(windows)
        batches = length_batches(dataset.lengths, self.batch_size)
        rounds = -(-len(batches) // self.lines.rank.world_size)
        logits: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        logged = 0
        for turn in range(rounds):
            # A rank without a batch in the last round repeats one: a sharded model needs every rank in every forward.
            batch = batches[(turn * self.lines.rank.world_size + self.lines.rank.rank) % len(batches)]
            items = [{key: value for key, value in dataset[i].items() if "positions" not in key} for i in batch]
            inputs = {name: tensor.to(device) for name, tensor in self.collator(items).items()}
            with torch.inference_mode(), autocast():
                output = model(**inputs)
            start, end = output.start_logits.float().cpu().numpy(), output.end_logits.float().cpu().numpy()
            for row, index in enumerate(batch):
                size = dataset.lengths[index]
                logits[int(index)] = (start[row, :size].copy(), end[row, :size].copy())
            if interrupted():
                raise AgreedStop
            if (turn + 1) * 5 // rounds > logged:
                logged = (turn + 1) * 5 // rounds
                self.lines.say(f"evaluation {100 * (turn + 1) // rounds} % done")
        return logits

    def _measure(
        self, questions: QuestionSet, start: list[np.ndarray], end: list[np.ndarray]
    ) -> tuple[dict[str, float], dict[str, str]]:
        contexts = [example.context for example in questions.examples]
        spans = predict(questions.windows, start, end, contexts, self.decoding)
        predictions = {example.id: best[0].answer for example, best in zip(questions.examples, spans, strict=True)}
        if not questions.scored:
            return {}, predictions
        scores = metrics.evaluate(predictions, questions.examples, version_2_with_negative=self.decoding.no_answer)
        return scores | {"loss": label_loss(questions.windows, start, end)}, predictions


def length_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Indices of all windows in batches of similar length. The longest come first, to show a lack of memory early."""
    order = np.argsort(-lengths, kind="stable")
    return [order[first : first + batch_size] for first in range(0, len(order), batch_size)]


def label_loss(windows: Sequence[Window], start: Sequence[np.ndarray], end: Sequence[np.ndarray]) -> float:
    """The training loss: mean cross entropy of start and end over the windows with labels; 0 if no window has any."""
    losses = [
        (_cross_entropy(first, window.start) + _cross_entropy(last, window.end)) / 2
        for window, first, last in zip(windows, start, end, strict=True)
        if window.start is not None and window.end is not None
    ]
    return float(np.mean(losses)) if losses else 0.0


def _cross_entropy(logits: np.ndarray, label: int) -> float:
    peak = float(logits.max())
    return peak + float(np.log(np.exp(logits.astype(np.float64) - peak).sum())) - float(logits[label])


def _flat(by_window: dict[int, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The start and end logits of all windows in one array (2 × the tokens of all windows,)."""
    return np.concatenate([np.zeros(0, np.float32), *(logits for pair in by_window.values() for logits in pair)])


def _by_window(
    indices: Sequence[Sequence[int]], logits: Sequence[np.ndarray], lengths: np.ndarray
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Start and end logits of all windows, in order. `indices` and `logits`: each rank's windows, and their `_flat`."""
    merged: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for windows, flat in zip(indices, logits, strict=True):
        sizes = np.repeat(lengths[np.asarray(windows, dtype=np.int64)], 2)
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        merged |= {index: (parts[2 * row], parts[2 * row + 1]) for row, index in enumerate(windows)}
    return [merged[index][0] for index in range(len(lengths))], [merged[index][1] for index in range(len(lengths))]
