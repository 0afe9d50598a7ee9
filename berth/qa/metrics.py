"""Exact match and F1 as defined by the official SQuAD scripts, v1.1 and v2.0, in percent over a data set.

Texts are compared after `normalize`; a prediction's score is its best over the gold answers. In v2.0 the right
prediction for a question without answers is empty, gold answers that normalize to nothing are ignored, and two empty
texts have an F1 of 1 (in v1.1: 0). A test compares both versions with an independent package on both complete dev sets.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from berth.qa.squad import Example

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, with single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, gold: str) -> float:
    """1.0 if both texts are equal after `normalize`, else 0.0."""
    return float(normalize(prediction) == normalize(gold))


def f1(prediction: str, gold: str, empty: float = 0.0) -> float:
    """Harmonic mean of precision and recall over words, 0 to 1; words count as often as they occur.

    empty: the score if both texts are empty after `normalize`: 0.0 in v1.1, 1.0 in v2.0.
    """
    predicted, wanted = normalize(prediction).split(), normalize(gold).split()
    if not predicted and not wanted:
        return empty
    shared = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * shared / (len(predicted) + len(wanted))


def question_scores(prediction: str, golds: Sequence[str], *, v2: bool) -> tuple[float, float]:
    """Exact match and F1 of one question, 0 to 1, each against its best gold answer.

    Without golds, which is allowed only in v2.0, the right prediction is empty.
    """
    wanted = [gold for gold in golds if normalize(gold)] or [""] if v2 else golds
    exact = max(exact_match(prediction, gold) for gold in wanted)
    return exact, max(f1(prediction, gold, empty=float(v2)) for gold in wanted)


def evaluate(
    predictions: Mapping[str, str],
    examples: Sequence[Example],
    *,
    version_2_with_negative: bool = False,
) -> dict[str, float]:
    """Scores of `predictions` (id → text; empty means "no answer") on all examples, of which there is at least one.

    Keys: `exact_match`, `f1` (percent) and `total`; for v2.0 also `HasAns_*` and `NoAns_*`, each with `exact`, `f1` and
    `total`, if there are such questions. The rules are v2.0's with version_2_with_negative, or if an example has no
    answers.

    A question without a prediction scores 0, as in v1.1 (v2.0's script can't score such a file).
    """
    has_answer = np.array([bool(example.answers) for example in examples])
    v2 = version_2_with_negative or not has_answer.all()
    exact, overlap = np.zeros(len(examples)), np.zeros(len(examples))
    for i, example in enumerate(examples):
        prediction = predictions.get(example.id)
        if prediction is not None:
            golds = [answer.text for answer in example.answers]
            exact[i], overlap[i] = question_scores(prediction, golds, v2=v2)
    scores = {"exact_match": 100 * exact.mean(), "f1": 100 * overlap.mean(), "total": len(examples)}
    if v2:
        for prefix, part in (("HasAns", has_answer), ("NoAns", ~has_answer)):
            if part.any():
                scores[f"{prefix}_exact"] = 100 * exact[part].mean()
                scores[f"{prefix}_f1"] = 100 * overlap[part].mean()
                scores[f"{prefix}_total"] = int(part.sum())
    return {key: value if isinstance(value, int) else float(value) for key, value in scores.items()}
