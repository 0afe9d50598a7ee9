"""Tests the decoding of logits: best spans, scores, no-answer, limits, and spans inside the context."""

import math
import random
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from berth.qa.spans import EVALUATION, SERVING, AnswersTooLongError, Decoding, LogitsError, Span, best_spans, predict
from berth.qa.windows import Window
from tests.unit.qa.cutting import windows_of

CONTEXT = "Oslo is the capital of Norway, and Bergen was its capital long before Oslo."


def plain_best(start: np.ndarray[Any, Any], end: np.ndarray[Any, Any], longest: int) -> list[tuple[float, int, int]]:
    """All allowed spans of one window, best first."""
    spans = [
        (float(start[i] + end[j]), i, j)
        for i in range(len(start))
        for j in range(i, min(i + longest, len(end)))
        if start[i] + end[j] > -np.inf
    ]
    return sorted(spans, key=lambda span: (-span[0], span[1], span[2]))


@pytest.mark.parametrize(("longest", "n_best"), [(1, 1), (1, 5), (4, 3), (15, 20), (100, 400)])
def test_best_spans_equal_a_plain_loop(longest: int, n_best: int) -> None:
    rng = np.random.default_rng(longest)
    start, end = rng.normal(size=(2, 7, 23)).round(1)  # rounded: ties occur
    start[:, :5] = end[:, :5] = -np.inf
    start[6] = -np.inf
    scores, firsts, lasts = best_spans(start, end, longest, n_best)
    for row in range(7):
        found = [
            (score, first, last)
            for score, first, last in zip(scores[row], firsts[row], lasts[row], strict=True)
            if score > -np.inf
        ]
        expected = plain_best(start[row], end[row], longest)[:n_best]
        assert [score for score, _, _ in found] == [score for score, _, _ in expected]
        assert all(start[row, i] + end[row, j] == score and 0 <= j - i < longest for score, i, j in found)
        assert len({(i, j) for _, i, j in found}) == len(found)


def logits_for(window: Window, *spans: tuple[int, int, float]) -> tuple[list[float], list[float]]:
    """Logits that are high at the first and last tokens of the given character spans, and low elsewhere."""
    start, end = [-5.0] * len(window.input_ids), [-5.0] * len(window.input_ids)
    for first, last, height in spans:
        for token in range(window.context_start, window.context_end):
            if window.offsets[token, 0] == first:
                start[token] = height
            if window.offsets[token, 1] == last:
                end[token] = height
    return start, end


def place(text: str, after: int = 0) -> tuple[int, int]:
    at = CONTEXT.index(text, after)
    return at, at + len(text)


def decode(
    tokenizer: Any, decoding: Decoding, *spans: tuple[int, int, float], null: float = -5.0, **cut: int
) -> list[Span]:
    windows = windows_of(tokenizer, [("Which?", CONTEXT)], **cut)
    starts, ends = zip(*(logits_for(window, *spans) for window in windows), strict=True)
    for logits in (*starts, *ends):
        logits[0] = null
    (found,) = predict(windows, starts, ends, [CONTEXT], decoding)
    assert all(span.answer == CONTEXT[span.start : span.end] for span in found)
    return found


def test_evaluation_compares_sums_of_logits_over_windows(tokenizer: Any) -> None:
    spans = [(*place("Norway"), 3.0), (*place("Bergen"), 4.0)]
    found = decode(tokenizer, EVALUATION, *spans, max_length=14, stride=4)
    assert found[0] == Span(8.0, *place("Bergen"), "Bergen")
    assert Span(6.0, *place("Norway"), "Norway") in found[:3]
    assert len({(s.start, s.end) for s in found}) == len(found) == 20  # each span once, although windows overlap
    assert [s.score for s in found] == sorted((s.score for s in found), reverse=True)


def test_serving_scores_are_products_of_softmaxes(tokenizer: Any) -> None:
    (window,) = windows_of(tokenizer, [("Which?", CONTEXT)])
    start, end = logits_for(window, (*place("Norway"), 3.0))
    start[1] = end[1] = 50.0  # the softmax must not include the question
    (found,) = predict([window], [start], [end], [CONTEXT], SERVING)
    others = window.context_end - window.context_start  # all tokens of the context but one, and [CLS]
    probability = math.exp(3) / (math.exp(3) + others * math.exp(-5))
    assert found == [Span(pytest.approx(probability**2), *place("Norway"), "Norway")]


def test_serving_adds_the_scores_of_equal_texts(tokenizer: Any) -> None:
    first, second = place("Oslo"), place("Oslo", after=10)
    (span,) = decode(tokenizer, SERVING, (*first, 2.0), (*second, 2.0), (*place("Norway"), 2.3))
    alone = decode(tokenizer, replace(SERVING, n_best=9), (*first, 2.0), (*place("Norway"), 2.3))
    assert (span.start, span.end, span.answer) == (*first, "Oslo")
    assert alone[0].answer == "Norway"


def test_max_answer_tokens_limits_the_answer(tokenizer: Any) -> None:
    first, last = place("Oslo"), place("Norway")
    assert decode(tokenizer, EVALUATION, (first[0], last[1], 9.0))[0].answer == "Oslo is the capital of Norway"
    assert decode(tokenizer, replace(EVALUATION, max_answer_tokens=6), (first[0], last[1], 9.0))[0].score == 18.0
    short = decode(tokenizer, replace(EVALUATION, max_answer_tokens=5), (first[0], last[1], 9.0))
    assert short[0].score == 4.0


@pytest.mark.parametrize(
    ("null", "threshold", "first"),
    [(1.9, 0.0, "Norway"), (2.0, 0.0, "Norway"), (2.1, 0.0, ""), (2.1, 0.3, "Norway"), (1.9, -0.3, "")],
    ids=["below", "equal", "above", "above-within-threshold", "below-negative-threshold"],
)
def test_no_answer_comes_first_above_the_threshold(tokenizer: Any, null: float, threshold: float, first: str) -> None:
    rule = replace(EVALUATION, no_answer=True, null_threshold=threshold)
    found = decode(tokenizer, rule, (*place("Norway"), 2.0), null=null)
    assert found[0].answer == first
    assert Span(2 * null, 0, 0, "") in found
    assert all(span.answer for span in decode(tokenizer, EVALUATION, (*place("Norway"), 2.0), null=9.0))


@pytest.mark.parametrize(
    ("null", "threshold", "first"),
    [
        (1.9, 0.0, "Norway"),
        (2.1, 0.0, ""),
        (2.1, 0.3, "Norway"),
        (1.9, -0.3, ""),
        (9.0, 5000.0, "Norway"),
        (-9, -5000, ""),
    ],
)
def test_threshold_applies_to_served_probabilities(tokenizer: Any, null: float, threshold: float, first: str) -> None:
    rule = replace(SERVING, no_answer=True, null_threshold=threshold)
    found = decode(tokenizer, rule, (*place("Norway"), 2.0), null=null)
    assert found[0].answer == first


def test_no_answer_score_is_the_lowest_of_all_windows(tokenizer: Any) -> None:
    windows = windows_of(tokenizer, [("Which?", CONTEXT)], 16, 4)
    assert len(windows) > 1
    logits = [np.full(len(w.input_ids), -5.0) for w in windows]
    for height, row in enumerate(logits, start=3):
        row[0] = height
    (found,) = predict(windows, logits, logits, [CONTEXT], replace(EVALUATION, no_answer=True))
    assert found[0] == Span(6.0, 0, 0, "")
    (served,) = predict(windows, logits, logits, [CONTEXT], replace(SERVING, no_answer=True, n_best=2))
    others = windows[0].context_end - windows[0].context_start
    lowest = (math.exp(3) / (math.exp(3) + others * math.exp(-5))) ** 2
    assert served[0] == Span(pytest.approx(lowest, rel=1e-3), 0, 0, "")
    assert served[1].answer


@pytest.mark.parametrize(("decoding", "max_length"), [(EVALUATION, 40), (SERVING, 40), (SERVING, 384)])
def test_answers_do_not_depend_on_other_windows_and_padding(
    tokenizer: Any, decoding: Decoding, max_length: int
) -> None:
    rng = np.random.default_rng(0)
    contexts = [" ".join(f"word{i}" for i in range(size)) for size in (*rng.integers(1, 60, 90), 120)]
    windows = windows_of(tokenizer, [("Which?", context) for context in contexts], max_length, 8)
    padded = rng.normal(scale=4, size=(2, len(windows), max_length + 10))
    for row, window in enumerate(windows):
        padded[:, row, len(window.input_ids) :] = np.nan
    together = predict(windows, padded[0], padded[1], contexts, decoding)
    assert (len(windows) > 100) == (max_length == 40)
    for example, context in enumerate(contexts):
        rows = [i for i, window in enumerate(windows) if window.example == example]
        alone = [replace(windows[i], example=0) for i in rows]
        starts, ends = ([padded[k, i, : len(windows[i].input_ids)] for i in rows] for k in (0, 1))
        assert predict(alone, starts, ends, [context], decoding)[0] == together[example]


@pytest.mark.parametrize(
    ("context", "token", "answer"),
    [
        ("x cafe\u0301 y", 1, "cafe\u0301"),
        ("नमस्ते", 2, "स्"),
        ("❤\ufe0f", 0, "❤\ufe0f"),
        ("a 👩‍💻 b", 1, "👩‍💻"),
        ("one\r\ntwo", 1, "two"),
        ("  lead", 0, "lead"),
        ("שלום", 3, "ם"),
    ],
)
def test_answers_are_whole_characters(tokenizer: Any, context: str, token: int, answer: str) -> None:
    (window,) = windows_of(tokenizer, [("What?", context)])
    logits = np.zeros(len(window.input_ids))
    logits[window.context_start + token] = 9.0
    span = predict([window], [logits], [logits], [context], EVALUATION)[0][0]
    assert (span.answer, context[span.start : span.end]) == (answer, answer)


@pytest.mark.slow
@pytest.mark.parametrize("decoding", [EVALUATION, SERVING, replace(SERVING, n_best=5, no_answer=True)])
def test_spans_lie_inside_random_text(tokenizer: Any, byte_level: Any, decoding: Decoding) -> None:
    rng = random.Random(5)
    numbers = np.random.default_rng(5)
    alphabet = "ab Z9.,\r\n\t\u00a0\u0301\u200b\u200d\ufe0f👩💻é가각ש中नमि\x00ﬁİ\u2028"
    contexts = ["".join(rng.choices(alphabet, k=rng.randint(1, 80))) for _ in range(150)]
    for each in (tokenizer, byte_level):
        windows = windows_of(each, [("What?", context) for context in contexts], 24, 5)
        logits = numbers.normal(scale=4, size=(2, len(windows), 24))
        for context, spans in zip(contexts, predict(windows, *logits, contexts, decoding), strict=True):
            assert 1 <= len(spans) <= decoding.n_best
            for span in spans:
                assert 0 <= span.start <= span.end <= len(context)
                assert span.answer == context[span.start : span.end] == span.answer.strip()
                assert span.answer or (span.start, span.end) == (0, 0)
                assert math.isfinite(span.score)


@pytest.mark.parametrize("decoding", [EVALUATION, SERVING], ids=["evaluation", "serving"])
@pytest.mark.parametrize("context", ["", " \r\n", "\u200b"], ids=["empty", "white-space", "zero-width"])
def test_a_context_without_tokens_gives_the_empty_answer(tokenizer: Any, context: str, decoding: Decoding) -> None:
    windows = windows_of(tokenizer, [("What?", context)])
    logits = [np.ones(len(windows[0].input_ids))]
    assert predict(windows, logits, logits, [context], decoding) == [[Span(0.0, 0, 0, "")]]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinite_logits_are_refused(tokenizer: Any, value: float) -> None:
    windows = windows_of(tokenizer, [("Which?", CONTEXT)])
    logits = [np.zeros(len(windows[0].input_ids))]
    broken = [logits[0].copy()]
    broken[0][5] = value
    with pytest.raises(LogitsError, match="its weights are broken"):
        predict(windows, broken, logits, [CONTEXT], EVALUATION)


def test_masked_logits_are_not_candidates(tokenizer: Any) -> None:
    windows = windows_of(tokenizer, [("Which?", CONTEXT)])
    logits = np.full(len(windows[0].input_ids), -np.inf)
    assert predict(windows, [logits], [logits], [CONTEXT], SERVING) == [[Span(0.0, 0, 0, "")]]
    logits[windows[0].context_start] = 1.0
    assert predict(windows, [logits], [logits], [CONTEXT], SERVING) == [[Span(1.0, 0, 4, "Oslo")]]


def random_logits(windows: list[Window]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=len(window.input_ids)) for window in windows]


@pytest.mark.slow
def test_character_limits_apply_before_texts_are_copied(tokenizer: Any) -> None:
    """A word of more than 100 characters is one token, so a few tokens can have any number of characters."""
    context = " ".join(f"{number:0>20000}" for number in range(100))
    windows = windows_of(tokenizer, [("Which?", context)])
    logits = random_logits(windows)
    many = replace(SERVING, n_best=1000, max_answer_tokens=100)
    tracemalloc.start()
    with pytest.raises(AnswersTooLongError, match="the spans that compete to be answers have more than 1000000 char"):
        predict(windows, logits, logits, [context], replace(many, most_candidate_characters=1_000_000))
    with pytest.raises(AnswersTooLongError, match="the answers have more than 200000 characters in all"):
        predict(windows, logits, logits, [context], replace(many, n_best=20, most_answer_characters=200_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000  # all texts together have a gigabyte


def test_character_limits_do_not_change_smaller_answers(tokenizer: Any) -> None:
    contexts = [CONTEXT, CONTEXT.upper(), CONTEXT * 9]
    windows = windows_of(tokenizer, [("Which?", context) for context in contexts], 40, 8)
    logits = random_logits(windows)
    rule = replace(SERVING, n_best=5, no_answer=True)
    answers = predict(windows, logits, logits, contexts, rule)
    characters = sum(len(span.answer) for spans in answers for span in spans)
    within = replace(rule, most_candidate_characters=10**6, most_answer_characters=characters + 100)
    assert predict(windows, logits, logits, contexts, within) == answers
    with pytest.raises(AnswersTooLongError):
        predict(windows, logits, logits, contexts, replace(rule, most_answer_characters=characters // 2))


def test_decoding_of_long_windows_needs_little_memory(tokenizer: Any) -> None:
    context = "word " * 20_000
    windows = windows_of(tokenizer, [("Which?", context)], 2048, 0)
    logits = random_logits(windows)
    tracemalloc.start()
    predict(windows, logits, logits, [context], replace(SERVING, max_answer_tokens=384))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(windows) == 10
    assert peak < 60_000_000  # one window at a time; all ten would need ten times as much
