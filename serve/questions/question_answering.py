"""Turns checked questions into windows for the model, and the model's logits into answers."""

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
from berth.serve.questions.fields import CheckedQuestions, Parameters, Question

log = logging.getLogger(__name__)

WINDOW = 384  # tokens of a window, and
STRIDE = 128  # tokens that neighbours share: the defaults of the former pipeline and of run_qa
WARM_UP = Question("What is this model used with?", "This model is used with sagemaker for inference.")
SURROGATE = re.compile("[\ud800-\udfff]")

Answer = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """The properties of a model that the server needs to make windows and answers."""

    tokenizer: PairTokenizer
    max_length: int  # tokens of its longest window
    null_threshold: float  # see berth.contract.model_files.NULL_THRESHOLD
    limits: RequestLimits

    @classmethod
    def of(cls, model: LoadedModel, limits: RequestLimits) -> "ModelTraits":
        return cls(model.tokenizer, model.engine.info.max_length, model.files.null_threshold, limits)


@dataclass(frozen=True, slots=True)
class PreparedQuestions:
    """Questions with their windows, within all limits except the one on the characters of the answers."""

    checked: CheckedQuestions
    windows: list[Window]
    decoding: Decoding

    @property
    def tokens(self) -> int:
        """Tokens of all windows."""
        return sum(len(window.input_ids) for window in self.windows)


def prepare(checked: CheckedQuestions, traits: ModelTraits) -> PreparedQuestions:
    """Make the windows; may run in any thread.

    ServeError if there are too many windows or answers (413), or if the windows can't be made, for instance because a
    question fills its window (400).
    """
    traits.limits.check_texts(checked.questions)
    windows = _make_windows(checked, traits)
    traits.limits.check_answers(len(windows), checked.parameters.top_k)
    parameters = checked.parameters
    decoding = replace(
        SERVING,
        max_answer_tokens=parameters.max_answer_len,
        n_best=parameters.top_k,
        align_to_words=parameters.align_to_words,
        no_answer=parameters.handle_impossible_answer,
        null_threshold=traits.null_threshold,
        most_candidate_characters=traits.limits.compared_characters,
        most_answer_characters=traits.limits.answer_characters,
    )
    return PreparedQuestions(checked, windows, decoding)


def answers(prepared: PreparedQuestions, logits: Sequence[RowLogits]) -> Any:
    """Answers in the order of the questions: `{"score", "start", "end", "answer"}`, or lists of these if top_k > 1.

    A single question gets one answer, a list of questions gets a list. `start` and `end` count code points of the
    context as it was sent, and `answer == context[start:end]`. A context without a token (only control characters, for
    instance) gets the empty answer at 0 to 0 with score 0. ServeError if the answers are too long (413) or the scores
    are not finite (500).
    """
    contexts = [question.context for question in prepared.checked.questions]
    start, end = [one.start for one in logits], [one.end for one in logits]
    try:
        spans = predict(prepared.windows, start, end, contexts, prepared.decoding)
    except AnswersTooLongError as error:
        raise ServeError(Kind.TOO_LARGE, f"{error}: lower `top_k` or `max_answer_len`, or ask less at once") from error
    except LogitsError as error:
        raise ServeError(Kind.BROKEN_MODEL, str(error)) from error
    ranked = [[_answer(span) for span in best] for best in spans]
    per_question = ranked if prepared.checked.parameters.top_k > 1 else [best[0] for best in ranked]
    return per_question[0] if prepared.checked.single else per_question


def warm_up(model: LoadedModel) -> float:
    """Answer one question alone and once per slot, so that /ping reports only a model that can answer. Then time
    one more batch, and return its seconds per token.

    ServeError if the model can't answer.
    """
    limits = RequestLimits()
    checked = CheckedQuestions((WARM_UP,), single=True, parameters=Parameters())
    prepared = prepare(checked, ModelTraits.of(model, limits))
    rows = [row_of(window) for window in prepared.windows]
    for alone in (True, *[False] * model.engine.info.slots):
        answers(prepared, model.engine.logits(rows, alone=alone))
    began = time.monotonic()
    model.engine.logits(rows)
    return (time.monotonic() - began) / prepared.tokens


def _make_windows(checked: CheckedQuestions, traits: ModelTraits) -> list[Window]:
    """The windows of all questions; ServeError as in `prepare`."""
    parameters, limits = checked.parameters, traits.limits
    length = parameters.max_seq_len or min(WINDOW, traits.max_length)
    if length > traits.max_length:
        raise ServeError(
            Kind.BAD_REQUEST,
            f"`parameters.max_seq_len` is {length}: this model takes at most {traits.max_length} tokens",
        )
    # The tokenizer can't read a lone surrogate: it has no UTF-8. One character replaces it, which keeps the offsets.
    readable = [Question(*(SURROGATE.sub("\ufffd", text) for text in question)) for question in checked.questions]
    try:
        return make_windows(
            traits.tokenizer,
            readable,
            max_length=length,
            stride=min(STRIDE, length // 2) if parameters.doc_stride is None else parameters.doc_stride,
            serving=Serving(parameters.doc_stride is None, limits.tokens, limits.window_tokens),
        )
    except TooManyWindowsError as error:
        raise limits.too_many_windows(error.windows, error.tokens) from error
    except WindowError as error:
        part = _name_of(checked, error.example)
        sentence = f"{part} can't be used: {error}"
        if error.example is not None and parameters.max_seq_len is not None and length < traits.max_length:
            sentence = (
                f"`parameters.max_seq_len` is {length}, which leaves too little room for the context next to the "
                f"question of {part}: raise it, up to {traits.max_length} with this model, or leave it out"
            )
            if parameters.doc_stride is not None:
                sentence += ", and lower `doc_stride` if that is not enough"
        raise ServeError(Kind.BAD_REQUEST, sentence) from error


def _name_of(checked: CheckedQuestions, question: int | None) -> str:
    """The field of the record that is at fault, by the client's name for it."""
    if question is None:
        return "`parameters`"
    return "`inputs`" if checked.single else f"`inputs[{question}]`"


def _answer(span: Span) -> Answer:
    """A span as JSON. Its score can be a sum over 1, because windows overlap: spans are ranked by the sum, and the
    client gets at most 1.
    """
    return {"score": min(1.0, float(span.score)), "start": int(span.start), "end": int(span.end), "answer": span.answer}
