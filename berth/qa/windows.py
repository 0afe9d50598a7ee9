"""Cuts long contexts into overlapping windows that fit the model: [CLS] question [SEP] piece of context [SEP].

The windows equal those of the tokenizer's own `truncation="only_second"` with `stride` (a test compares them). They are
cut here, from one encoding without truncation, because the tokenizer's way is not safe in a server: its truncation is a
setting of an object that all threads share, and a question that leaves too little room causes a Rust panic that
`except Exception` does not catch (tokenizers 0.23).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

from berth.qa.answers import UNKNOWN
from berth.qa.scripts import unspaced
from berth.qa.squad import Example, is_unicode
from berth.qa.tokenizer import PairTokenizer

IntArray = npt.NDArray[np.int32]

_CHUNK = 256
"""Pairs to tokenize at a time: encodings hold their tokens as strings too, which takes gigabytes for all of SQuAD."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Settings of a server that training does not use."""

    shrink_stride: bool = False
    """For a default stride: if a question leaves too little room for it, use half of the room instead."""
    most_tokens: int | None = None
    """The most tokens of all windows together."""
    least_tokens: int = 1
    """A shorter window counts as this many tokens, because it costs as much."""


class WindowError(ValueError):
    """The settings or a pair are invalid, so that no windows can be cut; the message is one sentence for the user."""

    def __init__(self, message: str, example: int | None = None) -> None:
        super().__init__(message)
        self.example = example
        """Index of the invalid example, None if the settings are invalid."""


class TooManyWindowsError(WindowError):
    """The windows have more tokens than `Serving.most_tokens`; raised before the pair's windows are cut."""

    def __init__(self, windows: int, tokens: int, most: int, example: int) -> None:
        super().__init__(f"The texts make {windows} windows with {tokens} tokens, over the limit of {most}.", example)
        self.windows = windows
        """The windows of all pairs up to this one, included."""
        self.tokens = tokens


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One row for the model, unpadded; the attention mask is all ones."""

    example: int
    """Index of its example or pair."""
    input_ids: IntArray
    """(tokens,)"""
    token_type_ids: IntArray | None
    """(tokens,); None if the model does not take them."""
    offsets: IntArray
    """(tokens, 2): start and end (exclusive) of each token, in characters of the context; 0, 0 outside the context."""
    words: IntArray
    """(tokens, 2): start and end of the word that contains the token; in scripts without spaces, of the token."""
    context_start: int
    """The context's tokens are at context_start ≤ i < context_end; there may be none."""
    context_end: int
    start: int | None = None
    """Label: index of the answer's first token; 0 ([CLS]) if the answer is not completely in this window."""
    end: int | None = None
    """Label: index of the answer's last token (inclusive)."""


def position_count(model: Any) -> int | None:
    """The most tokens of a window for a transformers model, None if its config has no limit."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if not positions:
        return None
    # RoBERTa and related models number positions from padding_idx + 1.
    padding = getattr(getattr(model.base_model, "embeddings", None), "padding_idx", None)
    return int(positions) - (0 if padding is None else int(padding) + 1)


def make_windows(
    tokenizer: PairTokenizer,
    examples: Sequence[Example | tuple[str, str]],
    max_length: int = 384,
    stride: int = 128,
    *,
    label: bool = False,
    serving: Serving | None = None,
) -> list[Window]:
    """The windows of `cut_windows` as a list."""
    return list(cut_windows(tokenizer, examples, max_length, stride, label=label, serving=serving))


def cut_windows(
    tokenizer: PairTokenizer,
    examples: Iterable[Example | tuple[str, str]],
    max_length: int = 384,
    stride: int = 128,
    *,
    label: bool = False,
    serving: Serving | None = None,
) -> Iterator[Window]:
    """Windows of all examples, or (question, context) pairs, in order; every example has at least one.

    max_length, stride (the overlap of neighbours): in tokens. label: add the position of the example's first answer,
    whose text must be at its offset (`squad.AnswerCheck`); no position if the data have no offset. Questions are never
    cut.

    Raises WindowError if settings are invalid, if a text is not valid Unicode, or if a question leaves at most `stride`
    tokens for a longer context, so that windows could not advance. Raises TooManyWindowsError over the limit of
    `serving`. Messages call `max_length` by the user's name for it: `max_seq_len` in a server, `max_seq_length` in
    training.
    """
    length_name = "max_seq_length" if serving is None else "max_seq_len"
    if not 0 <= stride < max_length:
        raise WindowError(f"doc_stride ({stride}) must be at least 0 and smaller than {length_name} ({max_length}).")
    serving = serving or Serving()
    windows = tokens = 0
    source = iter(examples)
    for first in count(0, _CHUNK):
        if not (chunk := list(islice(source, _CHUNK))):
            return
        encodings = _encode(tokenizer, [_pair(example) for example in chunk], first)
        for index, (example, encoding) in enumerate(zip(chunk, encodings, strict=True), start=first):
            size = encoding.sequence_ids.count(1)
            others = len(encoding) - size
            room = max_length - others
            advancing = room // 2 if serving.shrink_stride and 0 < room <= stride else stride
            if size > room and room <= advancing:
                name = example.id if isinstance(example, Example) else f"number {index + 1}"
                raise WindowError(_too_long(name, room, max_length, stride, length_name), index)
            # The starts of the windows in the context, up to the first window that reaches its end.
            begins = range(0, size - advancing, room - advancing) if size > room else range(1)
            windows += len(begins)
            tokens += len(begins) * max(others + min(size, room), serving.least_tokens)
            if serving.most_tokens is not None and tokens > serving.most_tokens:
                raise TooManyWindowsError(windows, tokens, serving.most_tokens, index)
            answer = _first_answer(example) if label else None
            labelled = label and not (answer and answer[0] == UNKNOWN)
            pair = _Pair(index, encoding, _pair(example)[1], token_types=tokenizer.token_types)
            yield from _cut(pair, begins, room, answer if labelled else None, label=labelled)


def _pair(example: Example | tuple[str, str]) -> tuple[str, str]:
    question, context = (example.question, example.context) if isinstance(example, Example) else example
    return question.lstrip(), context  # as in the SQuAD recipe: one question begins with 25,000 spaces


def _first_answer(example: Example | tuple[str, str]) -> tuple[int, int] | None:
    """Start and end (exclusive) of the answer to train on, in characters."""
    assert isinstance(example, Example), "pairs have no answers to label"
    if not example.answers:
        return None
    answer = example.answers[0]
    return answer.start, answer.start + len(answer.text)


def _encode(tokenizer: PairTokenizer, pairs: list[tuple[str, str]], first: int) -> list[Encoding]:
    """The encodings of pairs; WindowError for a text that is not valid Unicode."""
    for index, texts in enumerate(pairs, start=first):
        if not all(is_unicode(text) for text in texts):
            raise WindowError("A text holds half a character (an unpaired surrogate): send valid Unicode.", index)
    return tokenizer.encode(pairs)


class _Pair:
    """One encoded pair as arrays, with the whole context."""

    def __init__(self, index: int, encoding: Encoding, context: str, *, token_types: bool) -> None:
        self.index = index
        self.ids = np.array(encoding.ids, np.int32)
        self.types = np.array(encoding.type_ids, np.int32) if token_types else None
        sequences = encoding.sequence_ids
        size = sequences.count(1)
        self.begin = sequences.index(1) if size else len(sequences)
        self.end = self.begin + size
        self.offsets = np.zeros((len(self.ids), 2), np.int32)
        self.words = self.offsets
        if size:
            inside = slice(self.begin, self.end)
            self.offsets[inside] = encoding.offsets[inside]
            self.words = _word_spans(self.offsets, encoding.word_ids, inside, context)

    def answer_tokens(self, answer: tuple[int, int]) -> tuple[int, int] | None:
        """First and last token that overlap the answer; None if none does (the answer is white space)."""
        inside = self.offsets[self.begin : self.end]
        first = int(np.searchsorted(inside[:, 1], answer[0], side="right"))
        last = int(np.searchsorted(inside[:, 0], answer[1], side="left")) - 1
        return (self.begin + first, self.begin + last) if first <= last else None


def _word_spans(offsets: IntArray, word_ids: list[int | None], inside: slice, context: str) -> IntArray:
    """For each context token, the characters of its word.

    The token's own characters if the tokenizer has no words, and in scripts without spaces, where the tokenizer may
    take a whole sentence for a word.
    """
    ids = word_ids[inside]
    if None in ids:
        return offsets
    numbers = np.array(ids)
    if (characters := unspaced(context)) is not None:
        before = np.r_[0, np.cumsum(characters)]
        alone = before[offsets[inside, 1]] > before[offsets[inside, 0]]
        numbers = np.r_[0, np.cumsum((numbers[1:] != numbers[:-1]) | alone[1:] | alone[:-1])]
    spans = np.zeros_like(offsets)
    first = inside.start + np.searchsorted(numbers, numbers, side="left")
    last = inside.start + np.searchsorted(numbers, numbers, side="right") - 1
    spans[inside, 0] = offsets[first, 0]
    spans[inside, 1] = offsets[last, 1]
    return spans


def _too_long(name: str, room: int, max_length: int, stride: int, length_name: str) -> str:
    """The error of a question that leaves no `room`, or too little for the stride."""
    left = f"with it {max(room, 0)} of a window's {max_length} tokens are left for the context"
    if room <= 0:
        return f"The question {name} is too long: {left}; shorten it or raise {length_name}."
    return (
        f"The question {name} is too long: {left}, and more than {stride} (doc_stride) are needed; shorten it, raise "
        f"{length_name} or lower doc_stride."
    )


def _cut(pair: _Pair, begins: range, room: int, answer: tuple[int, int] | None, *, label: bool) -> Iterator[Window]:
    """The windows of a pair; each has up to `room` tokens of the context from its start."""
    before = pair.begin
    tokens = pair.answer_tokens(answer) if answer is not None else None
    for offset in begins:
        begin = pair.begin + offset
        end = min(begin + room, pair.end)
        pick = np.r_[0:before, begin:end, pair.end : len(pair.ids)]
        start_label = end_label = 0 if label else None
        if tokens is not None and begin <= tokens[0] and tokens[1] < end:
            start_label, end_label = tokens[0] - begin + before, tokens[1] - begin + before
        yield Window(
            example=pair.index,
            input_ids=pair.ids[pick],
            token_type_ids=None if pair.types is None else pair.types[pick],
            offsets=pair.offsets[pick],
            words=pair.words[pick],
            context_start=before,
            context_end=before + end - begin,
            start=start_label,
            end=end_label,
        )
