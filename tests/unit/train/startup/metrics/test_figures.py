"""Compares squad, squad_v2 and GLUE's stsb with values computed by hand."""

from typing import Any

import numpy as np
import pytest

from berth.train.startup.metrics import figures


def reference(name: str, *texts: str) -> dict[str, Any]:
    return {"id": name, "answers": {"text": list(texts), "answer_start": [0] * len(texts)}}


def test_squad_uses_best_answer_and_0_without_prediction() -> None:
    references = [reference("a", "the Eiffel Tower", "Tower"), reference("b", "one two"), reference("c", "x")]
    scores = figures.squad({"a": "eiffel tower", "b": "two three"}, references)
    assert scores == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx(100 * (1 + 0.5) / 3)}


def test_squad_v2_scores_and_best_threshold() -> None:
    references = [reference("a", "Paris"), reference("b", "two words"), reference("c"), reference("d", "the")]
    predictions = {"c": "wrong", "a": "paris", "b": "two", "d": ""}
    no_answer = {"a": 0.1, "b": 0.6, "c": 0.2, "d": 0.9}
    assert figures.squad_v2(predictions, no_answer, references, threshold=0.5) == {
        # b has an answer, but its no_answer is above the threshold. c has none, but is answered. d: "the" counts as "".
        "exact": 25.0,
        "f1": 25.0,
        "total": 4,
        "HasAns_exact": pytest.approx(100 / 3),
        "HasAns_f1": pytest.approx(100 / 3),
        "HasAns_total": 3,
        "NoAns_exact": 0.0,
        "NoAns_f1": 0.0,
        "NoAns_total": 1,
        "best_exact": 50.0,
        "best_exact_thresh": 0.1,
        "best_f1": pytest.approx(100 * (1 + 1 - 1 + 2 / 3 + 1) / 4),
        "best_f1_thresh": 0.9,
    }


def test_squad_v2_without_answers_and_with_missing_prediction() -> None:
    scores = figures.squad_v2(
        {"a": "x", "b": ""}, {"a": 0.3, "b": 0.2}, [reference("a"), reference("b")], threshold=1.0
    )
    assert (scores["exact"], scores["NoAns_total"], scores["best_f1"], scores["best_f1_thresh"]) == (
        50.0,
        2,
        100.0,
        0.0,
    )
    assert not any(name.startswith("HasAns") for name in scores)
    with pytest.raises(ValueError, match="the question 'b' has none"):
        figures.squad_v2({"a": "x"}, {"a": 0.3}, [reference("a"), reference("b")], threshold=1.0)


@pytest.mark.slow
def test_stsb_and_unknown_glue_task() -> None:
    scores = figures.glue("stsb", np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0]))
    assert scores == {"pearson": pytest.approx(0.3273268), "spearmanr": pytest.approx(0.5)}
    with pytest.raises(KeyError, match="GLUE has no task 'mlni'"):
        figures.check_task("mlni")
