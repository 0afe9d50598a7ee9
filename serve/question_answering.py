"""A checked request to windows for the model, and the model's logits to answers."""

import logging
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from berth.qa.spans import SERVING, AnswersTooLongError, Decoding, LogitsError, Span, predict
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Serving, TooManyWindowsError, Window, WindowError, make_windows
from berth.runtime.engines.choose import LoadedModel
from berth.runtime.engines.engine import RowLogits, row_of
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.questions import CheckedQuestions, Parameters, Question

log = logging.getLogger(__name__)

WINDOW = 384  # tokens of a window and
STRIDE = 128  # tokens shared by neighbours: the defaults of the former pipeline, and of the training recipe
WARM_UP = Question("What is this model used with?", "This model is used with sagemaker for inference.")
SURROGATE = re.compile("[\ud800-\udfff]")

Answer = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Reading:
    """What turns a request into windows for a model, and its logits into answers."""

    tokenizer: PairTokenizer
    max_length: int  # tokens of its longest window
    null_threshold: float  # see berth.contract.model_files.NULL_THRESHOLD
    limits: RequestLimits

    @classmethod
    def of(cls, model: LoadedModel, limits: RequestLimits) -> "Reading":
        return cls(model.tokenizer, model.engine.info.max_length, model.files.null_threshold, limits)


@dataclass(frozen=True, slots=True)
class PreparedQuestions:
    """A request that is ready for the model: nothing of it can be refused for its size any more but its answers."""

    request: CheckedQuestions
    windows: list[Window]
    decoding: Decoding

    @property
    def tokens(self) -> int:
        """Of all windows."""
        return sum(len(window.input_ids) for window in self.windows)


def prepare(data: CheckedQuestions, reading: Reading) -> PreparedQuestions:
    """The request's windows, made in any thread; ServeError if they or their answers are too many (413), or if they
    can't be made, for instance because the question fills the window (400).
    """
    reading.limits.check_texts(data.questions)
    windows = request_windows(data, reading)
    reading.limits.check_answers(len(windows), data.parameters.top_k)
    return PreparedQuestions(data, windows, request_decoding(data.parameters, reading))


def answers(prepared: PreparedQuestions, logits: Sequence[RowLogits]) -> Any:
    """Answers in the order of the questions: `{"score", "start", "end", "answer"}`, or lists of it if top_k > 1.

    One question gives its answer, a list a list. `start` and `end` count code points of the context as it was sent, and
    `answer == context[start:end]`. ServeError if there is too much of them (413) or the scores are not finite (500).
    """
    ranked = [[answer_of(span) for span in best] for best in best_spans(prepared, logits)]
    found = ranked if prepared.request.parameters.top_k > 1 else [best[0] for best in ranked]
    return found[0] if prepared.request.single else found


def warm_up(model: LoadedModel) -> float:
    """Answer one question in each way that the engine has, so that /ping says ready only of a model that can; then
    once more, and say for how many seconds each of its tokens keeps a slot of a warm model.

    ServeError if it can't.
    """
    limits = RequestLimits()
    data = CheckedQuestions((WARM_UP,), single=True, parameters=Parameters())
    prepared = prepare(data, Reading.of(model, limits))
    rows = [row_of(window) for window in prepared.windows]
    for alone in (True, *[False] * model.engine.info.slots):
        answers(prepared, model.engine.logits(rows, alone=alone))
    began = time.monotonic()
    model.engine.logits(rows)
    return (time.monotonic() - began) / prepared.tokens


def request_windows(request: CheckedQuestions, reading: Reading) -> list[Window]:
    """The windows of all questions; ServeError as `prepare` says."""
    parameters, limits = request.parameters, reading.limits
    length = parameters.max_seq_len or min(WINDOW, reading.max_length)
    if length > reading.max_length:
        raise ServeError(
            Kind.BAD_REQUEST,
            f"`parameters.max_seq_len` is {length}: this model takes at most {reading.max_length} tokens",
        )
    # An unpaired surrogate has no UTF-8, so the tokenizer can't read it; a character for a character keeps the offsets.
    readable = [Question(*(SURROGATE.sub("\ufffd", text) for text in question)) for question in request.questions]
    try:
        return make_windows(
            reading.tokenizer,
            readable,
            max_length=length,
            stride=min(STRIDE, length // 2) if parameters.doc_stride is None else parameters.doc_stride,
            serving=Serving(parameters.doc_stride is None, limits.tokens, limits.window_tokens),
        )
    except TooManyWindowsError as error:
        raise limits.too_many_windows(error.windows, error.tokens) from error
    except WindowError as error:
        part = _part(request, error.example)
        sentence = f"{part} can't be used: {error}"
        if error.example is not None and parameters.max_seq_len is not None and length < reading.max_length:
            sentence = (
                f"`parameters.max_seq_len` is {length}, which leaves too little room for the context next to the "
                f"question of {part}: raise it, up to {reading.max_length} with this model, or leave it out"
            )
            if parameters.doc_stride is not None:
                sentence += ", and lower `doc_stride` if that is not enough"
        raise ServeError(Kind.BAD_REQUEST, sentence) from error


def request_decoding(parameters: Parameters, reading: Reading) -> Decoding:
    """How answers are made of the logits."""
    return replace(
        SERVING,
        max_answer_tokens=parameters.max_answer_len,
        n_best=parameters.top_k,
        align_to_words=parameters.align_to_words,
        no_answer=parameters.handle_impossible_answer,
        null_threshold=reading.null_threshold,
        most_candidate_characters=reading.limits.compared_characters,
        most_answer_characters=reading.limits.answer_characters,
    )


def best_spans(prepared: PreparedQuestions, logits: Sequence[RowLogits]) -> list[list[Span]]:
    """The best spans of each question, best first, `top_k` or fewer, never none; ServeError as `answers` says.

    A context without any token (white space, control characters) gets the empty answer at 0 to 0 with score 0.
    """
    contexts = [question.context for question in prepared.request.questions]
    start, end = [one.start for one in logits], [one.end for one in logits]
    try:
        return predict(prepared.windows, start, end, contexts, prepared.decoding)
    except AnswersTooLongError as error:
        raise ServeError(Kind.TOO_LARGE, f"{error}: lower `top_k` or `max_answer_len`, or ask less at once") from error
    except LogitsError as error:
        raise ServeError(Kind.BROKEN_MODEL, str(error)) from error


def _part(request: CheckedQuestions, question: int | None) -> str:
    """What of the request is at fault, as the client wrote it."""
    if question is None:
        return "`parameters`"
    return "`inputs`" if request.single else f"`inputs[{question}]`"


def answer_of(span: Span) -> Answer:
    """A span as the client reads it. Its score may be a sum of more than 1, for windows share texts: it is ranked by
    that, and told as 1.
    """
    return {"score": min(1.0, float(span.score)), "start": int(span.start), "end": int(span.end), "answer": span.answer}
