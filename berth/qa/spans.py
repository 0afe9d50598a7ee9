"""Decodes a model's start and end logits into spans of the context, best first.

There are two ways. `EVALUATION` is that of the SQuAD recipe: a span's score is the sum of its two logits, compared over
all windows. `SERVING` is that of the question-answering pipeline that transformers 5.3 removed: softmax of the start
times softmax of the end in each window; spans are widened to whole words, and equal texts are merged, as in 4.57. (In
scripts without spaces 4.57 widened spans to the whole sentence; here they stay as they are.) Both search all spans of
up to `max_answer_tokens`; the recipe itself considers only the 20 best starts and ends.

A span's answer is always `context[start:end]`, in characters of the original context.
"""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from berth.qa.windows import Window

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
Logits = Sequence[Any] | npt.NDArray[Any]
"""One row per window: arrays or lists of numbers."""

_ScoredSpan = tuple[float, int, int]
"""Score, start and end (exclusive), in characters."""

_BATCH_SPANS = 32 * 384 * 30
"""Spans to score at a time: those of 32 windows with 384 tokens and 30 lengths take 3 MB, about a core's cache."""


class AnswersTooLongError(ValueError):
    """The answers, or the candidates for them, have more characters than `Decoding` allows."""


class LogitsError(ValueError):
    """The model's logits are not numbers; the message is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class Span:
    """An answer."""

    score: float
    """See `Decoding.score`."""
    start: int
    """First character in the context."""
    end: int
    """The character after the last; start == end == 0 and an empty answer mean "no answer"."""
    answer: str


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to decode; start from `EVALUATION` or `SERVING` and change fields with `dataclasses.replace`."""

    score: Literal["logits", "probabilities"]
    """`logits`: their sum; of equal spans in several windows the best counts. `probabilities`: the product of the
    softmaxes over the context and [CLS] of a window. Scores of equal texts are added, over windows too as in the
    pipeline, so the score of an answer in several overlapping windows can exceed 1."""
    max_answer_tokens: int
    n_best: int
    """The most spans to return per example."""
    align_to_words: bool
    """Widen a span that begins or ends inside a word to the whole word (`Window.words`)."""
    no_answer: bool = False
    """Whether "no answer" (SQuAD v2.0) is allowed; its score is that of [CLS] as start and end, the lowest of all
    windows."""
    null_threshold: float = 0.0
    """The no-answer comes first if its sum of logits exceeds the best span's by more than this; as a probability, if
    it exceeds exp(null_threshold) times the best span's, which is the same in one window."""
    most_candidate_characters: int | None = None
    """Limit of the characters of all compared spans in all examples; only `probabilities` compares texts."""
    most_answer_characters: int | None = None
    """Limit of the characters of all answers in all examples."""


EVALUATION = Decoding(score="logits", max_answer_tokens=30, n_best=20, align_to_words=False)
SERVING = Decoding(score="probabilities", max_answer_tokens=15, n_best=1, align_to_words=True)


def best_spans(
    start: FloatArray, end: FloatArray, max_answer_tokens: int, n_best: int
) -> tuple[FloatArray, IndexArray, IndexArray]:
    """The best spans of each window, best first: scores, first tokens, last tokens, each (windows, k), k ≤ n_best.

    start, end: (windows, tokens), whose sum is a span's score; -inf where no span may start or end. If a window has
    fewer than k spans, its last scores are -inf.
    """
    windows, tokens = start.shape
    lengths = min(max_answer_tokens, tokens)
    padded = np.full((windows, tokens + lengths - 1), -np.inf)
    padded[:, :tokens] = end
    # ends[w, i, d] = end[w, i + d]: the band of the table of starts and ends with exactly the allowed spans.
    ends = np.lib.stride_tricks.sliding_window_view(padded, lengths, axis=1)
    scores = (start[:, :, None] + ends).reshape(windows, tokens * lengths)
    k = min(n_best, scores.shape[1])
    top = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    top_scores = np.take_along_axis(scores, top, axis=1)
    order = np.lexsort((top, -top_scores), axis=1)  # ties: the earlier span first, then the shorter one
    top = np.take_along_axis(top, order, axis=1)
    first = top // lengths
    return np.take_along_axis(top_scores, order, axis=1), first, first + top % lengths


def predict(
    windows: Sequence[Window],
    start_logits: Logits,
    end_logits: Logits,
    contexts: Sequence[str],
    decoding: Decoding,
) -> list[list[Span]]:
    """The best spans of every example, best first; at least one per example.

    `start_logits[i]` and `end_logits[i]` are the logits of the tokens of `windows[i]`; padding after them is ignored,
    so padded arrays (windows, tokens) are fine. `contexts[e]` is the context of the windows with `example == e`. An
    example whose context has no token (only white space or control characters) gets the empty answer with score 0.

    Raises LogitsError if a logit of a window is not a number, and AnswersTooLongError over a limit of `decoding`. Even
    a span of one token can be as long as the context, because a word that the tokenizer does not know is one token.
    """
    as_probabilities = decoding.score == "probabilities"
    # The pipeline's number of candidates; the sums over equal texts depend on it.
    widened = as_probabilities and decoding.align_to_words
    candidates = 2 * decoding.n_best + 10 if widened else decoding.n_best
    candidate_spans: list[list[_ScoredSpan]] = [[] for _ in contexts]
    null = np.full(len(contexts), np.inf)
    for part in _parts(windows, decoding.max_answer_tokens):
        batch = windows[part]
        inside, start, end = _stack(batch, start_logits[part], end_logits[part])
        if as_probabilities:
            start, end = _log_softmax(start, inside), _log_softmax(end, inside)
        no_answer = start[:, 0] + end[:, 0]
        spans = best_spans(
            np.where(inside, start, -np.inf),
            np.where(inside, end, -np.inf),
            decoding.max_answer_tokens,
            candidates,
        )
        scores, firsts, lasts = spans
        if as_probabilities:
            no_answer, scores = np.exp(no_answer), np.exp(scores)
        real = scores > (0 if as_probabilities else -np.inf)
        for row, window in enumerate(batch):
            null[window.example] = min(null[window.example], no_answer[row])
            chars = window.words if decoding.align_to_words else window.offsets
            keep = real[row]
            candidate_spans[window.example].extend(
                zip(
                    scores[row, keep].tolist(),
                    chars[firsts[row, keep], 0].tolist(),
                    chars[lasts[row, keep], 1].tolist(),
                    strict=True,
                )
            )
    compared = _Characters("spans that compete to be answers", decoding.most_candidate_characters)
    answered = _Characters("answers", decoding.most_answer_characters)
    return [
        _rank(_merge(spans_of_one, context, decoding, compared), float(null_score), context, decoding, answered)
        for spans_of_one, null_score, context in zip(candidate_spans, null, contexts, strict=True)
    ]


def _parts(windows: Sequence[Window], max_answer_tokens: int) -> Iterator[slice]:
    """Slices of windows with up to `_BATCH_SPANS` spans, at least one window each."""
    tokens = max((len(window.input_ids) for window in windows), default=1)
    size = max(1, _BATCH_SPANS // (tokens * min(max_answer_tokens, tokens)))
    return (slice(first, first + size) for first in range(0, len(windows), size))


class _Characters:
    """A sum of lengths with a limit."""

    def __init__(self, name: str, most: int | None) -> None:
        self.name = name
        self.most = most
        self.sum = 0

    def add(self, count: int) -> None:
        """Add a length; AnswersTooLongError if the sum exceeds the limit."""
        self.sum += count
        if self.most is not None and self.sum > self.most:
            raise AnswersTooLongError(f"the {self.name} have more than {self.most} characters in all")


def _stack(
    batch: Sequence[Window], start_logits: Logits, end_logits: Logits
) -> tuple[npt.NDArray[np.bool_], FloatArray, FloatArray]:
    """Three arrays (windows, longest): mask of the context's tokens, start logits, end logits; padded with -inf."""
    longest = max(len(window.input_ids) for window in batch)
    inside = np.zeros((len(batch), longest), np.bool_)
    start, end = np.full((2, len(batch), longest), -np.inf)
    for row, window in enumerate(batch):
        size = len(window.input_ids)
        inside[row, window.context_start : window.context_end] = True
        start[row, :size] = np.asarray(start_logits[row])[:size]
        end[row, :size] = np.asarray(end_logits[row])[:size]
    broken = ~(start < np.inf) | ~(end < np.inf)  # models may mask with -inf; NaN and +inf are invalid
    if broken.any():
        raise LogitsError(
            "The model's scores are not numbers (NaN or infinite): its weights are broken, train it again with a lower "
            "learning rate or without fp16."
        )
    return inside, start, end


def _log_softmax(logits: FloatArray, inside: npt.NDArray[np.bool_]) -> FloatArray:
    """The log-softmax over the context and [CLS] of each window, as in the pipeline; -inf elsewhere."""
    kept = inside.copy()
    kept[:, 0] = True
    masked = np.where(kept, logits, -np.inf)
    peak = np.maximum(masked.max(axis=1, keepdims=True), -1e300)  # finite even if all are masked
    shifted = masked - peak
    # cumsum adds in order, so that the zeros of padding do not change the result; the order of `sum` depends on the
    # width. The total is at least 1, because exp(0) of the peak is in it, unless all are masked.
    total = np.exp(shifted).cumsum(axis=1)[:, -1:]
    return np.asarray(shifted - np.log(np.maximum(total, 1.0)))


def _merge(spans: Sequence[_ScoredSpan], context: str, decoding: Decoding, compared: _Characters) -> list[_ScoredSpan]:
    """One span per answer, best first."""
    merged: dict[object, _ScoredSpan] = {}
    if decoding.score == "logits":
        for score, start, end in spans:
            known = merged.get((start, end))
            if known is None or score > known[0]:
                merged[start, end] = (score, start, end)
    else:
        places = {(start, end) for _, start, end in spans}
        compared.add(sum(end - start for start, end in places))  # before any text is copied
        texts = {(start, end): context[start:end].lower() for start, end in places}
        for score, start, end in spans:
            text = texts[start, end]
            before, at, to = merged.get(text, (0.0, start, end))
            merged[text] = (before + score, at, to)
    return sorted(merged.values(), key=lambda span: -span[0])


def _rank(
    spans: list[_ScoredSpan], null_score: float, context: str, decoding: Decoding, answered: _Characters
) -> list[Span]:
    ranked: list[Span] = []
    for score, start, end in spans:
        span = _span(score, start, end, context)
        if span.answer:
            answered.add(len(span.answer))
            ranked.append(span)
        if len(ranked) == decoding.n_best:
            break
    if decoding.no_answer and null_score < np.inf:
        least = _least_score(null_score, decoding)
        ranked.insert(sum(span.score >= least for span in ranked), Span(null_score, 0, 0, ""))
    return ranked[: decoding.n_best] or [Span(0.0, 0, 0, "")]


def _least_score(null_score: float, decoding: Decoding) -> float:
    """The lowest score of a span that comes before "no answer"."""
    if decoding.score == "logits":
        return null_score - decoding.null_threshold
    # Clipped to the range of a float: a threshold of thousands means never, or always.
    return null_score * math.exp(min(max(-decoding.null_threshold, -700.0), 700.0))


def _span(score: float, start: int, end: int, context: str) -> Span:
    """The span without white space at its ends (some tokenizers' offsets include it), and with all combining marks."""
    text = context[start:end]
    if not text.strip():
        return Span(score, 0, 0, "")
    start += len(text) - len(text.lstrip())
    end = start + len(text.strip())
    # The offsets of a tokenizer that strips accents exclude trailing marks: "cafe" instead of c a f e U+0301.
    while end < len(context) and unicodedata.category(context[end])[0] == "M":
        end += 1
    while start > 0 and unicodedata.category(context[start])[0] == "M" and not context[start - 1].isspace():
        start -= 1
    return Span(score, start, end, context[start:end])
