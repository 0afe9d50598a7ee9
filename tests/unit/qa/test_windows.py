"""Tests that windows equal those of the tokenizer's own truncation, and that labels and offsets match the context."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from berth.qa.squad import Answer, Example, read
from berth.qa.windows import Serving, TooManyWindowsError, Window, WindowError, position_count
from tests.unit.qa.cutting import windows_of


def text_of(window: Window, context: str) -> str:
    assert window.start is not None
    assert window.end is not None
    return context[window.offsets[window.start, 0] : window.offsets[window.end, 1]]


@pytest.mark.slow
@pytest.mark.parametrize(("max_length", "stride"), [(384, 128), (64, 16), (40, 0), (56, 20)])
def test_windows_equal_the_tokenizers_own_truncation(
    tokenizer: Any, byte_level: Any, sample: Path, max_length: int, stride: int
) -> None:
    examples = [e for e in read(sample / "squad-heldout.json.xz") if len(e.question) < 60][::4]
    for fast in (tokenizer, byte_level):
        windows = windows_of(fast, examples, max_length, stride)
        theirs = fast(
            [e.question for e in examples],
            [e.context for e in examples],
            truncation="only_second",
            max_length=max_length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        assert [w.example for w in windows] == theirs["overflow_to_sample_mapping"]
        for i, window in enumerate(windows):
            inside = np.array([s == 1 for s in theirs.sequence_ids(i)])
            assert window.input_ids.tolist() == theirs["input_ids"][i]
            if window.token_type_ids is not None:
                assert window.token_type_ids.tolist() == theirs["token_type_ids"][i]
            assert np.array_equal(np.flatnonzero(inside), np.arange(window.context_start, window.context_end))
            assert (window.offsets[inside] == np.array(theirs["offset_mapping"][i])[inside]).all()
            assert not window.offsets[~inside].any()
            assert len(window.input_ids) <= max_length


@pytest.mark.parametrize(
    ("context", "answer"), [("a 👩‍💻 b", "👩‍💻"), ("x cafe\u0301 y", "cafe\u0301"), ("שלום עולם", "עולם"), ("a b", "b")]
)
def test_byte_level_labels_match_the_answer(byte_level: Any, context: str, answer: str) -> None:
    example = Example("q", "What?", context, (Answer(answer, context.index(answer)),))
    (window,) = windows_of(byte_level, [example], label=True)
    assert window.token_type_ids is None
    assert text_of(window, context).strip() == answer


def test_labels_of_the_sample_match_its_answers(tokenizer: Any, sample: Path) -> None:
    examples = read(sample / "squad-train.json.xz")[::8]
    windows = windows_of(tokenizer, examples, label=True)
    assert len(windows) == len(examples)  # each context fits into one window
    gold = [(e.answers[0].text, text_of(w, e.context)) for e, w in zip(examples, windows, strict=True)]
    # An answer that begins or ends inside a token ("1990" of "1990s") is labelled with the whole token.
    assert all(answer in labelled for answer, labelled in gold)
    assert sum(answer == labelled for answer, labelled in gold) > 0.98 * len(gold)


def test_an_answer_outside_a_window_is_labelled_as_cls(tokenizer: Any) -> None:
    context = " ".join(f"w{i}" for i in range(60)) + " the answer stands here " + " ".join(f"v{i}" for i in range(60))
    answer = Answer("the answer stands here", context.index("the answer"))
    windows = windows_of(tokenizer, [Example("q", "Where?", context, (answer,))], 64, 16, label=True)
    texts = [text_of(w, context) if w.end else None for w in windows]
    assert set(texts) == {None, answer.text}
    for window, text in zip(windows, texts, strict=True):
        whole = window.offsets[window.context_start : window.context_end]
        assert (text is not None) == (whole[0, 0] <= answer.start and answer.start + len(answer.text) <= whole[-1, 1])
        assert text is not None or (window.start, window.end) == (0, 0)


@pytest.mark.parametrize(
    ("context", "answer", "labelled"),
    [
        ("x cafe\u0301 y", "cafe\u0301", "cafe"),  # the mark has no token; spans.py puts it back
        ("x caf\u00e9 y", "caf\u00e9", "caf\u00e9"),
        ("a 👩‍💻 b", "👩‍💻", "👩‍💻"),
        ("one\r\ntwo three", "two", "two"),
        ("  lead ing", "  lead", "lead"),
        ("word and word", " word", "word"),
        ("שלום עולם", "עולם", "עולם"),
        ("\u200bzero\u200b", "zero", "zero"),
        ("서울은 한국", "한국", "한국"),
        ("in the 1990s", "1990", "1990s"),
    ],
)
def test_labels_in_unusual_text(tokenizer: Any, context: str, answer: str, labelled: str) -> None:
    example = Example("q", "What?", context, (Answer(answer, context.rindex(answer)),))
    (window,) = windows_of(tokenizer, [example], label=True)
    assert text_of(window, context) == labelled


@pytest.mark.parametrize("answers", [(), (Answer(" \r\n", 3),)], ids=["unanswerable", "white-space"])
def test_label_is_cls_if_the_answer_has_no_tokens(tokenizer: Any, answers: tuple[Answer, ...]) -> None:
    (window,) = windows_of(tokenizer, [Example("q", "What?", "one \r\n two", answers)], label=True)
    assert (window.start, window.end) == (0, 0)


def test_pairs_have_no_labels(tokenizer: Any) -> None:
    windows = windows_of(tokenizer, [("What?", "one"), ("  Who?", "two")])
    assert [(w.example, w.start, w.end) for w in windows] == [(0, None, None), (1, None, None)]
    assert windows[0].input_ids.dtype == np.int32
    assert windows_of(tokenizer, []) == []


def long_question(tokens: int) -> str:
    return " ".join(["why"] * tokens)


@pytest.mark.parametrize(
    ("question_tokens", "context_tokens", "windows"),
    [(64 - 3 - 17, 200, 184), (64 - 3 - 17, 17, 1), (64 - 3 - 10, 10, 1), (60, 1, 1)],
    ids=["room-is-stride-and-1", "fits-exactly", "fits-in-less-than-stride", "fits-in-one-token"],
)
def test_long_questions_that_leave_enough_room(
    tokenizer: Any, question_tokens: int, context_tokens: int, windows: int
) -> None:
    result = windows_of(tokenizer, [(long_question(question_tokens), long_question(context_tokens))], 64, 16)
    assert len(result) == windows
    assert {len(w.input_ids) for w in result} == {64}


@pytest.mark.parametrize(
    ("question_tokens", "message"),
    [
        (64 - 3 - 16, "with it 16 of .* more than 16 .* are needed; shorten it, raise max_seq_len or lower doc_stride"),
        (61, "with it 0 of a window's 64 tokens are left for the context; shorten it or raise max_seq_len"),
        (100, "with it 0 of a window's 64 tokens are left for the context; shorten it or raise max_seq_len"),
    ],
    ids=["room-is-stride", "no-room", "over"],
)
def test_questions_that_leave_too_little_room_are_refused(tokenizer: Any, question_tokens: int, message: str) -> None:
    pairs = [("What?", "fine"), (long_question(question_tokens), long_question(50))]
    with pytest.raises(WindowError, match=rf"question number 2 is too long: {message}\.") as error:
        windows_of(tokenizer, pairs, 64, 16, serving=Serving())
    assert error.value.example == 1


@pytest.mark.parametrize("room", [16, 9, 1])
def test_default_stride_shrinks_to_half_the_room(tokenizer: Any, room: int) -> None:
    context = " ".join(f"w{number}" for number in range(40))
    windows = windows_of(
        tokenizer,
        [(long_question(64 - 3 - room), context)],
        64,
        16,
        serving=Serving(shrink_stride=True),
    )
    spans = [window.offsets[window.context_start : window.context_end] for window in windows]
    assert {len(span) for span in spans[:-1]} == {room}
    assert spans[-1][-1, 1] == len(context)
    for before, after in itertools.pairwise(spans):
        assert after[0, 0] <= before[-1, 1] + 1, "no token may be skipped"
        assert after[0, 0] > before[0, 0]


@pytest.mark.parametrize(
    ("tokens", "stride", "windows"),
    [(60, 16, 1), (61, 16, 2), (200, 16, 5), (200, 59, 141)],
    ids=["fits", "one-more", "several", "a-window-for-each-token"],
)
def test_token_limit_counts_windows_before_they_are_cut(tokenizer: Any, tokens: int, stride: int, windows: int) -> None:
    pairs = [(long_question(1), long_question(tokens))] * 3
    result = windows_of(tokenizer, pairs, 64, stride, serving=Serving(most_tokens=3 * windows * 64))
    assert len(result) == 3 * windows
    with pytest.raises(TooManyWindowsError) as error:
        windows_of(tokenizer, pairs, 64, stride, serving=Serving(most_tokens=3 * windows * 64 - 1))
    assert (error.value.windows, error.value.tokens) == (3 * windows, 3 * windows * 64)


def test_short_windows_count_as_least_tokens(tokenizer: Any) -> None:
    pairs = [("What?", "one")] * 10
    assert len(windows_of(tokenizer, pairs, serving=Serving(most_tokens=320, least_tokens=32))) == 10
    with pytest.raises(TooManyWindowsError, match="make 10 windows with 320 tokens, over the limit of 319"):
        windows_of(tokenizer, pairs, serving=Serving(most_tokens=319, least_tokens=32))


@pytest.mark.parametrize(
    ("positions", "padding", "most"), [(512, None, 512), (514, 1, 512), (None, None, None), (0, None, None)]
)
def test_position_count(positions: int | None, padding: int | None, most: int | None) -> None:
    model = SimpleNamespace(
        config=SimpleNamespace(max_position_embeddings=positions),
        base_model=SimpleNamespace(embeddings=SimpleNamespace(padding_idx=padding)),
    )
    assert position_count(model) == most


@pytest.mark.parametrize(("max_length", "stride"), [(384, 384), (384, -1), (0, 0)])
def test_invalid_stride_is_refused(tokenizer: Any, max_length: int, stride: int) -> None:
    with pytest.raises(WindowError, match=r"doc_stride \(-?\d+\) must be at least 0 and smaller than max_seq_length"):
        windows_of(tokenizer, [("What?", "one")], max_length, stride)


def test_unpaired_surrogate_is_refused(tokenizer: Any) -> None:
    with pytest.raises(WindowError, match="half a character") as error:
        windows_of(tokenizer, [("What?", "one"), ("What?", "a\ud83d")])
    assert error.value.example == 1
