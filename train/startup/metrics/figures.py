"""Computes the values of squad, squad_v2 and glue, under the names of evaluate's modules.

bench/results/2026-11-24-metrics.md compares them with evaluate's own modules, on 6,000 rows each.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from berth.qa.metrics import question_scores

GLUE_TASKS = (
    *("sst2", "mnli", "mnli_mismatched", "mnli_matched", "cola", "stsb"),
    *("mrpc", "qqp", "qnli", "rte", "wnli", "hans"),
)

Floats = npt.NDArray[np.float64]


def squad(predictions: Mapping[str, str], references: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """EM and F1 of SQuAD v1.1 in percent; `references` have `id` and the texts of `answers`. A question without a
    prediction scores 0.
    """
    scores = np.zeros((len(references), 2))
    for row, reference in zip(scores, references, strict=True):
        prediction = predictions.get(reference["id"])
        if prediction is not None:
            row[:] = question_scores(prediction, reference["answers"]["text"], v2=False)
    exact, overlap = (100 * scores.mean(axis=0)).tolist()
    return {"exact_match": exact, "f1": overlap}


def squad_v2(
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float],
    references: Sequence[Mapping[str, Any]],
    threshold: float,
) -> dict[str, float]:
    """The scores of SQuAD v2.0 in percent: for all questions, those with and those without answers, and the best scores
    with another threshold.

    no_answer: probability by id that there is no answer; above `threshold` the prediction counts as "no answer". Raises
    ValueError if a question has no prediction.
    """
    golds = {reference["id"]: reference["answers"]["text"] for reference in references}
    if missing := [name for name in golds if name not in predictions]:
        raise ValueError(f"squad_v2 needs a prediction for every reference: the question {missing[0]!r} has none.")
    raw = np.array([question_scores(predictions[name], texts, v2=True) for name, texts in golds.items()])
    answerable = np.array([bool(texts) for texts in golds.values()])
    silent = np.array([no_answer[name] > threshold for name in golds])
    judged = np.where(silent[:, None], ~answerable[:, None], raw)

    scores: dict[str, float] = {}
    for prefix, part in (("", np.ones_like(answerable)), ("HasAns_", answerable), ("NoAns_", ~answerable)):
        if part.any():
            exact, overlap = (100 * judged[part].mean(axis=0)).tolist()
            scores |= {f"{prefix}exact": exact, f"{prefix}f1": overlap, f"{prefix}total": int(part.sum())}
    # Equal probabilities stay in the order of the predictions.
    place = {name: row for row, name in enumerate(golds)}
    order = [place[name] for name in sorted(predictions, key=no_answer.__getitem__) if name in place]
    names = list(golds)
    spoken = np.array([bool(predictions[name]) for name in names])
    probabilities = np.array([no_answer[name] for name in names])
    for column, figure in enumerate(("exact", "f1")):
        gains = np.where(answerable, raw[:, column], -spoken.astype(float))[order]
        best, at = _best_threshold(gains, probabilities[order], int((~answerable).sum()))
        scores |= {f"best_{figure}": 100 * best / len(golds), f"best_{figure}_thresh": at}
    return scores


def _best_threshold(gains: Floats, probabilities: Floats, silent_score: int) -> tuple[float, float]:
    """The best sum of scores, and the lowest threshold that reaches it; 0.0 if giving no answer at all is as good.

    gains: each answer's gain over giving none, sorted by probability. silent_score: the sum if no answers are given.
    """
    sums = silent_score + np.cumsum(gains)
    at = int(sums.argmax())
    if sums[at] <= silent_score:
        return float(silent_score), 0.0
    return float(sums[at]), float(probabilities[at])


def check_task(task: str) -> None:
    """Raises KeyError if GLUE does not have the task."""
    if task not in GLUE_TASKS:
        known = ", ".join(GLUE_TASKS)
        raise KeyError(
            f"GLUE has no task {task!r}: load the metric with evaluate.load('glue', TASK), TASK being one of {known}."
        )


def glue(task: str, predictions: npt.NDArray[Any], references: npt.NDArray[Any]) -> dict[str, float]:
    """The metrics of a GLUE task, from arrays of labels (stsb: of scores). Raises KeyError for an unknown task."""
    check_task(task)
    if task == "stsb":
        from scipy.stats import pearsonr, spearmanr

        return {
            "pearson": float(pearsonr(predictions, references)[0]),
            "spearmanr": float(spearmanr(predictions, references)[0]),
        }
    from sklearn.metrics import f1_score, matthews_corrcoef

    if task == "cola":
        return {"matthews_correlation": float(matthews_corrcoef(references, predictions))}
    accuracy = {"accuracy": float(np.mean(predictions == references))}
    if task in ("mrpc", "qqp"):
        return accuracy | {"f1": float(f1_score(references, predictions))}
    return accuracy
