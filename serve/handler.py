"""Question answering as the four functions of a SageMaker inference handler: load, read, predict, write.

The class has the functions that `sagemaker_inference.transformer.Transformer` asks of its default handler, by their
names; a user's `code/inference.py` is not run. It does not derive from the toolkit's
DefaultInferenceHandler: that class only supplies a decoder and an encoder, which are replaced here, and importing them
loads SciPy (35 MB of image, a second of every start).
"""

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from berth.qa.spans import SERVING, AnswersTooLongError, LogitsError, Span, predict
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Serving, TooManyWindowsError, Window, WindowError, make_windows
from berth.runtime.cpus import model_threads
from berth.runtime.engines import choose
from berth.runtime.engines.choose import LoadedModel
from berth.runtime.engines.engine import RowLogits, logits_of_all, row_of
from berth.runtime.gpu import driver
from berth.serve.codecs import CODECS, JSON, Records, answer_codec, request_codec, text_of
from berth.serve.errors import Kind, ServeError
from berth.serve.json_text import encode
from berth.serve.limits import RequestLimits
from berth.serve.request import Parameters, Question, Request, parse

log = logging.getLogger(__name__)

WINDOW = 384  # tokens of a window and
STRIDE = 128  # tokens shared by neighbours: the defaults of the former pipeline, and of the training recipe
WARM_UP = Question("What is this model used with?", "This model is used with sagemaker for inference.")
SURROGATE = re.compile("[\ud800-\udfff]")

Answer = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Reading:
    """What turns a request into windows for a model: its tokenizer, and its longest window."""

    tokenizer: PairTokenizer
    max_length: int
    limits: RequestLimits


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that is ready for the model: nothing of it can be refused for its size any more but its answers."""

    request: Request
    windows: list[Window]
    tokens: int  # of all windows


class QuestionAnsweringHandler:
    """The handler as SageMaker's toolkit asks for it, in one process: each method is one of the four functions."""

    def __init__(self, limits: RequestLimits | None = None) -> None:
        self.limits = limits or RequestLimits()

    def default_model_fn(self, model_dir: str | Path) -> LoadedModel:
        """Find and load the model under `model_dir`; ModelFilesError with one sentence if it can't be served."""
        cuda = driver.count_gpus(Path("/"), os.environ) > 0 and driver.torch_cuda() is not None
        return choose.load(Path(model_dir), choose.settings(os.environ, model_threads(), cuda=cuda), log.info)

    def default_input_fn(self, input_data: bytes | str, content_type: str | None) -> Request:
        """The checked request in a body of JSON; ServeError (400, 415)."""
        codec, encoding = request_codec(content_type)
        text = input_data if isinstance(input_data, str) else text_of(input_data, encoding)
        return parse(codec.read(text).values[0])

    def default_predict_fn(self, data: Request, model: LoadedModel) -> Any:
        """Answers in the order of the questions: `{"score", "start", "end", "answer"}`, or lists of it if top_k > 1.

        One question gives its answer, a list a list. `start` and `end` count code points of the context as it was sent,
        and `answer == context[start:end]`. ServeError if the question fills the window (400), if there is too much of
        anything (413) or if the scores are not finite (500).
        """
        prepared = prepare(data, Reading(model.tokenizer, model.engine.info.max_length, self.limits))
        return answers(prepared, logits_of_all(model.engine, prepared.windows), self.limits)

    def default_output_fn(self, prediction: Any, accept: str | None) -> tuple[bytes, str]:
        """The body and its Content-Type; ServeError (406) if the client takes no JSON."""
        codec = answer_codec(accept, CODECS[JSON])
        return encode(codec.write(Records([prediction], separate=False), [prediction])), codec.media_type


def prepare(data: Request, reading: Reading) -> PreparedRequest:
    """The request's windows, made in any thread; ServeError if they are too many (413) or can't be made (400)."""
    reading.limits.check_texts(data.questions)
    windows = request_windows(data, reading)
    return PreparedRequest(data, windows, sum(len(window.input_ids) for window in windows))


def answers(prepared: PreparedRequest, logits: Sequence[RowLogits], limits: RequestLimits) -> Any:
    """What `default_predict_fn` returns, from the logits of the windows."""
    ranked = [[answer_of(span) for span in best] for best in best_spans(prepared, logits, limits)]
    found = ranked if prepared.request.parameters.top_k > 1 else [best[0] for best in ranked]
    return found[0] if prepared.request.single else found


def warm_up(model: LoadedModel) -> None:
    """Answer one question in each way that the engine has, so that /ping says ready only of a model that can.

    ServeError if it can't.
    """
    limits = RequestLimits()
    data = Request((WARM_UP,), single=True, parameters=Parameters())
    prepared = prepare(data, Reading(model.tokenizer, model.engine.info.max_length, limits))
    rows = [row_of(window) for window in prepared.windows]
    for alone in (True, *[False] * model.engine.info.slots):
        answers(prepared, model.engine.logits(rows, alone=alone), limits)


def request_windows(request: Request, reading: Reading) -> list[Window]:
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
        raise ServeError(Kind.BAD_REQUEST, f"{part} can't be used: {error}") from error


def best_spans(prepared: PreparedRequest, logits: Sequence[RowLogits], limits: RequestLimits) -> list[list[Span]]:
    """The best spans of each question, best first, `top_k` or fewer, never none; ServeError as default_predict_fn says.

    A context without any token (white space, control characters) gets the empty answer at 0 to 0 with score 0.
    """
    parameters = prepared.request.parameters
    decoding = replace(
        SERVING,
        max_answer_tokens=parameters.max_answer_len,
        n_best=parameters.top_k,
        no_answer=parameters.handle_impossible_answer,
        most_candidate_characters=limits.compared_characters,
        most_answer_characters=limits.answer_characters,
    )
    contexts = [question.context for question in prepared.request.questions]
    start, end = [one.start for one in logits], [one.end for one in logits]
    try:
        return predict(prepared.windows, start, end, contexts, decoding)
    except AnswersTooLongError as error:
        raise ServeError(Kind.TOO_LARGE, f"{error}: lower `top_k` or `max_answer_len`, or ask less at once") from error
    except LogitsError as error:
        raise ServeError(Kind.BROKEN_MODEL, str(error)) from error


def _part(request: Request, question: int | None) -> str:
    """What of the request is at fault, as the client wrote it."""
    if question is None:
        return "`parameters`"
    return "`inputs`" if request.single else f"`inputs[{question}]`"


def answer_of(span: Span) -> Answer:
    """A span as the client reads it."""
    return {"score": float(span.score), "start": int(span.start), "end": int(span.end), "answer": span.answer}
