"""Long contexts cut into overlapping windows that a model can take: [CLS] question [SEP] piece of context [SEP].

The windows are those of the tokenizer's own `truncation="only_second"` with `stride` (a test compares them), but they
are cut here, from one encoding without truncation, because the tokenizer's way is not safe in a server: it sets its
truncation on an object that all threads share, and a question that leaves too little room ends in a Rust panic that
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
"""Pairs tokenised at a time: an encoding holds its tokens as strings too, gigabytes for the whole of SQuAD."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What a server asks of windows, and training does not."""

    shrink_stride: bool = False
    """For a stride that nobody asked for: a question that leaves too little room for it gets one of half the room."""
    most_tokens: int | None = None
    """Tokens that all windows together may have."""
    least_tokens: int = 1
    """What a shorter window counts as, for none is cheaper."""


class WindowError(ValueError):
    """A question and its context can't be cut into windows; the message is one sentence for the user."""

    def __init__(self, message: str, example: int | None = None) -> None:
        super().__init__(message)
        self.example = example
        """Index of the example at fault, None when the settings are."""


class TooManyWindowsError(WindowError):
    """The windows have more tokens than `Serving.most_tokens`; counted before any of the pair's is made."""

    def __init__(self, windows: int, tokens: int, most: int, example: int) -> None:
        super().__init__(f"The texts make {windows} windows with {tokens} tokens, over the limit of {most}.", example)
        self.windows = windows
        """Those of all pairs up to the one at fault, itself included."""
        self.tokens = tokens


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One row for the model, unpadded; the attention mask is all ones."""

    example: int
    """Index of the example or pair that it comes from."""
    input_ids: IntArray
    """(tokens,)"""
    token_type_ids: IntArray | None
    """(tokens,); None for a model that takes none."""
    offsets: IntArray
    """(tokens, 2): first character and the one after the last, in the context as given; 0, 0 outside the context."""
    words: IntArray
    """(tokens, 2): the same for the whole word that a token is a part of; in scripts without spaces the token alone."""
    context_start: int
    """The context's tokens are those at context_start ≤ i < context_end, possibly none."""
    context_end: int
    start: int | None = None
    """Label: index of the answer's first token; 0 ([CLS]) when the answer is not (all) in this window."""
    end: int | None = None
    """Label: index of the answer's last token, itself included."""

    @property
    def context_mask(self) -> npt.NDArray[np.bool_]:
        """(tokens,): true for tokens of the context."""
        positions = np.arange(len(self.input_ids))
        return (positions >= self.context_start) & (positions < self.context_end)


def position_count(model: Any) -> int | None:
    """The most tokens that a window may have for a model of transformers, None where its config names no limit."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if not positions:
        return None
    # RoBERTa and its kin count theirs from behind the padding id.
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
    """As `cut_windows`, all of them."""
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

    `max_length` and `stride` (the overlap of neighbours) are in tokens. With `label`, each window carries the position
    of its example's first answer, whose text must stand at its offset (`squad.AnswerCheck`), or none if the data do
    not say where that is. Questions are never cut.

    Raises WindowError when settings make no sense, when a text is not valid Unicode, and when a question leaves no more
    than `stride` tokens for a context that needs more: windows could not advance. Raises TooManyWindowsError over the
    limit of `serving`. Its sentences call `max_length` by the name that the user knows it by: a server's is
    `max_seq_len`, training's `max_seq_length`.
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
            begins = _begins(size, room, advancing)
            windows += len(begins)
            tokens += len(begins) * max(others + min(size, room), serving.least_tokens)
            if serving.most_tokens is not None and tokens > serving.most_tokens:
                raise TooManyWindowsError(windows, tokens, serving.most_tokens, index)
            labelled = label and not _lacks_offset(example)
            answer = _first_answer(example) if labelled else None
            pair = _Pair(index, encoding, _pair(example)[1], token_types=tokenizer.token_types)
            yield from _cut(pair, begins, room, answer, label=labelled)


def _begins(size: int, room: int, stride: int) -> range:
    """Where the windows of a context of `size` tokens begin: the last is the first that reaches the context's end."""
    return range(0, size - stride, room - stride) if size > room else range(1)


def _pair(example: Example | tuple[str, str]) -> tuple[str, str]:
    question, context = (example.question, example.context) if isinstance(example, Example) else example
    return question.lstrip(), context  # as the SQuAD recipe: one of its questions begins with 25,000 spaces


def _lacks_offset(example: Example | tuple[str, str]) -> bool:
    return isinstance(example, Example) and bool(example.answers) and example.answers[0].start == UNKNOWN


def _first_answer(example: Example | tuple[str, str]) -> tuple[int, int] | None:
    """First character and the one after the last of the answer to train on."""
    if not isinstance(example, Example):
        raise TypeError("label=True needs examples with answers, not pairs.")
    if not example.answers:
        return None
    answer = example.answers[0]
    return answer.start, answer.start + len(answer.text)


def _encode(tokenizer: PairTokenizer, pairs: list[tuple[str, str]], first: int) -> list[Encoding]:
    """The encodings of whole pairs; WindowError for a text that has none."""
    for index, texts in enumerate(pairs, start=first):
        if not all(is_unicode(text) for text in texts):
            raise WindowError("A text holds half a character (an unpaired surrogate): send valid Unicode.", index)
    return tokenizer.encode(pairs)


class _Pair:
    """One encoded pair as arrays, over the whole context."""

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
        """First and last token that touch the answer's characters; None if none does (it is only white space)."""
        inside = self.offsets[self.begin : self.end]
        first = int(np.searchsorted(inside[:, 1], answer[0], side="right"))
        last = int(np.searchsorted(inside[:, 0], answer[1], side="left")) - 1
        return (self.begin + first, self.begin + last) if first <= last else None


def _word_spans(offsets: IntArray, word_ids: list[int | None], inside: slice, context: str) -> IntArray:
    """For each context token the characters of its whole word; the token's own where the tokenizer knows no words, and
    in scripts without spaces, where what it takes for a word can be the whole sentence.
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
    """The sentence for a question that leaves no `room`, or too little for the stride."""
    left = f"with it {max(room, 0)} of a window's {max_length} tokens are left for the context"
    if room <= 0:
        return f"The question {name} is too long: {left}; shorten it or raise {length_name}."
    return (
        f"The question {name} is too long: {left}, and more than {stride} (doc_stride) are needed; shorten it, raise "
        f"{length_name} or lower doc_stride."
    )


def _cut(pair: _Pair, begins: range, room: int, answer: tuple[int, int] | None, *, label: bool) -> Iterator[Window]:
    """The windows of a pair, each with up to `room` tokens of its context from where it begins."""
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
