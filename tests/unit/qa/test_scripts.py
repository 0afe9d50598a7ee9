"""Tests answers in scripts without spaces, in which a tokenizer may take a whole sentence for a word."""

import numpy as np
import pytest

from berth.qa.scripts import unspaced
from berth.qa.spans import EVALUATION, SERVING, predict
from berth.qa.windows import Window
from tests.unit.qa.cutting import sentence_piece, windows_of

JAPANESE = ["東京", "タワー", "は", "港区", "に", "ある", "。"]
PIECES = [*JAPANESE, "Tok", "yo", "สถา", "นี", "รถไฟ", "north", "ern", "서울", "에"]


def answers(window: Window, context: str, wanted: str) -> list[str]:
    """The answers with SERVING and EVALUATION for logits that point at the tokens of `wanted`."""
    begin = context.index(wanted)
    logits = np.full((2, 1, len(window.input_ids)), -9.0)
    for token in range(window.context_start, window.context_end):
        first, last = window.offsets[token]
        logits[0, 0, token] += 20 * (first == begin)
        logits[1, 0, token] += 20 * (last == begin + len(wanted))
    return [predict([window], *logits, [context], rule)[0][0].answer for rule in (SERVING, EVALUATION)]


@pytest.mark.parametrize(
    ("context", "wanted"),
    [
        ("東京タワーは港区にある。", "港区"),
        ("東京タワーはTokyoにある。", "Tokyo"),
        ("สถานีรถไฟ", "รถไฟ"),
    ],
    ids=["japanese", "latin-in-japanese", "thai"],
)
def test_serving_and_evaluation_agree_in_unspaced_scripts(context: str, wanted: str) -> None:
    (window,) = windows_of(sentence_piece(PIECES), [("ern", context)])
    assert answers(window, context, wanted) == [wanted, wanted]


@pytest.mark.parametrize(
    ("context", "wanted", "word"),
    [("northern Tokyo", "yo", "Tokyo"), ("서울에 Tokyo", "서울", "서울에"), ("東京Tokyoにある", "yo", "Tokyo")],
    ids=["latin", "korean", "latin-in-japanese"],
)
def test_answers_in_spaced_scripts_are_widened_to_words(context: str, wanted: str, word: str) -> None:
    (window,) = windows_of(sentence_piece(PIECES), [("ern", context)])
    assert answers(window, context, wanted) == [word, wanted]


def test_unspaced_marks_the_characters_of_these_scripts() -> None:
    assert unspaced("Tokyo") is None
    assert unspaced("Zürich, 서울") is None
    found = unspaced("a東ｱア。ไกAé")
    assert found is not None
    assert found.tolist() == [False, True, True, True, True, True, True, False, False]
