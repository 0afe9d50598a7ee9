"""Tests exact match and F1 with single answers; test_against_reference.py compares whole data sets with a reference."""

import pytest

from berth.qa.metrics import evaluate, exact_match, f1, normalize
from berth.qa.squad import Answer, Example


def example(id_: str, *answers: str) -> Example:
    return Example(id_, "Which?", "context", tuple(Answer(text, 0) for text in answers))


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The Cat, a dog & AN owl!", "cat dog owl"),
        ("theatre another", "theatre another"),
        ("a.n apple", "apple"),  # punctuation is removed before articles
        ("the-the", "thethe"),
        ("U.S.", "us"),
        (" tab\tline\r\nnbsp\u00a0 ", "tab line nbsp"),
        ("“Straße” — £5", "“straße” — £5"),  # only ASCII punctuation is removed
        ("The a an", ""),
        ("", ""),
    ],
)
def test_normalize(text: str, normalized: str) -> None:
    assert normalize(text) == normalized


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "score"),
    [
        ("the Oslo.", "Oslo", 1.0, 1.0),
        ("Oslo", "Oslo city", 0.0, 2 / 3),
        ("Oslo Oslo", "Oslo", 0.0, 2 / 3),  # words count as often as they occur
        ("Oslo Oslo city", "Oslo Oslo town", 0.0, 2 / 3),
        ("Bergen", "Oslo", 0.0, 0.0),
        ("", "Oslo", 0.0, 0.0),
        ("the", "a", 1.0, 0.0),  # v1.1: two empty texts match, but their F1 is 0
    ],
)
def test_exact_match_and_f1_of_one_answer(prediction: str, gold: str, em: float, score: float) -> None:
    assert exact_match(prediction, gold) == em
    assert f1(prediction, gold) == pytest.approx(score)
    assert f1(gold, prediction) == pytest.approx(score)


def test_version_1_takes_the_best_gold_answer_and_0_for_a_missing_prediction() -> None:
    examples = [example("a", "Oslo city", "Oslo"), example("b", "Norway"), example("c", "the"), example("d", "x y")]
    result = evaluate({"a": "Oslo", "c": "an", "d": "x"}, examples)
    assert result == {"exact_match": 50.0, "f1": pytest.approx(100 * (1 + 0 + 0 + 2 / 3) / 4), "total": 4}


def test_version_2_scores_unanswerable_questions() -> None:
    examples = [example("a", "Oslo"), example("b"), example("c"), example("d", "the", "x y"), example("e", "the")]
    predictions = {"a": "", "b": "", "c": "Oslo", "d": "x", "e": "a"}
    assert evaluate(predictions, examples) == {
        "exact_match": 40.0,  # b and e
        "f1": pytest.approx(100 * (1 + 2 / 3 + 1) / 5),
        "total": 5,
        "HasAns_exact": pytest.approx(100 / 3),
        "HasAns_f1": pytest.approx(100 * (2 / 3 + 1) / 3),
        "HasAns_total": 3,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }


def test_version_2_rules_apply_on_request() -> None:
    result = evaluate({"a": "an"}, [example("a", "the")], version_2_with_negative=True)
    assert (result["exact_match"], result["f1"], result["HasAns_total"]) == (100.0, 100.0, 1)
    assert "NoAns_total" not in result
