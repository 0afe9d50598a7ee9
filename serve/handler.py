"""Question answering as the four functions of a SageMaker inference handler: load, read, predict, write.

The class has the functions that `sagemaker_inference.transformer.Transformer` asks of its default handler, by their
names; a user's `code/inference.py` is not run. It does not derive from the toolkit's
DefaultInferenceHandler: that class only supplies a decoder and an encoder, which are replaced here, and importing them
loads SciPy (35 MB of image, a second of every start).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from berth.qa.spans import SERVING, AnswersTooLongError, LogitsError, Span, predict
from berth.qa.windows import Serving, TooManyWindowsError, Window, WindowError, make_windows
from berth.serve import content, models
from berth.serve.engines.engine import Engine, never
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.request import Parameters, Question, Request, parse

WINDOW = 384  # tokens of a window and
STRIDE = 128  # tokens shared by neighbours: the defaults of the former pipeline, and of the training recipe
WARM_UP = Question("What is this model used with?", "This model is used with sagemaker for inference.")
SURROGATE = re.compile("[\ud800-\udfff]")

Answer = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is ready to answer."""

    files: models.ModelFiles
    tokenizer: Any  # a fast tokenizer of transformers
    engine: Engine


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that is ready for the model: nothing of it can be refused for its size any more but its answers."""

    request: Request
    windows: list[Window]
    tokens: int  # of all windows


class QuestionAnsweringHandler:
    """The handler that serves: each method is one of SageMaker's four functions, or the warm-up before the first."""

    def __init__(self, limits: RequestLimits | None = None) -> None:
        self.limits = limits or RequestLimits()

    def default_model_fn(self, model_dir: str | Path) -> Model:
        """Find and load the model under `model_dir`; models.ModelFilesError with one sentence if it can't be served."""
        files = models.find(Path(model_dir))
        from berth.serve.engines import pytorch  # seconds of import, and needless if files are missing

        return Model(files, pytorch.load_tokenizer(files), pytorch.PyTorchEngine(files))

    def default_model_warmup_fn(self, model_dir: str | Path, model: Model) -> None:
        """Answer one question, so that /ping says ready only of a model that can; ServeError if it can't."""
        self.default_predict_fn(Request((WARM_UP,), single=True, parameters=Parameters()), model)

    def default_input_fn(self, input_data: bytes | str, content_type: str | None) -> Request:
        """The checked request in a body; ServeError (400, 415)."""
        content.check_content_type(content_type)
        return parse(content.decode(input_data))

    def prepare(self, data: Request, model: Model) -> PreparedRequest:
        """The request's windows, made in any thread; ServeError if they are too many (413) or can't be made (400)."""
        self.limits.check_texts(data.questions)
        windows = request_windows(data, model, self.limits)
        return PreparedRequest(data, windows, sum(len(window.input_ids) for window in windows))

    def default_predict_fn(self, data: Request, model: Model) -> Any:
        """Answers in the order of the questions: `{"score", "start", "end", "answer"}`, or lists of it if top_k > 1.

        One question gives its answer, a list a list. `start` and `end` count code points of the context as it was sent,
        and `answer == context[start:end]`. ServeError if the question fills the window (400), if there is too much of
        anything (413) or if the scores are not finite (500).
        """
        return self.predict(self.prepare(data, model), model)

    def predict(self, prepared: PreparedRequest, model: Model, cancelled: Callable[[], bool] = never) -> Any:
        """The second half of `default_predict_fn`, in the thread that owns the model; CancelledError: see Engine."""
        spans = best_spans(prepared, model, self.limits, cancelled)
        ranked: list[list[Answer]] = [[answer_of(span) for span in best] for best in spans]
        answers = ranked if prepared.request.parameters.top_k > 1 else [best[0] for best in ranked]
        return answers[0] if prepared.request.single else answers

    def default_output_fn(self, prediction: Any, accept: str | None) -> tuple[bytes, str]:
        """The body and its Content-Type; ServeError (406) if the client takes no JSON."""
        content.check_accept(accept)
        return content.encode(prediction), content.JSON


def request_windows(request: Request, model: Model, limits: RequestLimits) -> list[Window]:
    """The windows of all questions; ServeError as `prepare` says."""
    parameters = request.parameters
    length = parameters.max_seq_len or min(WINDOW, model.engine.max_length)
    if length > model.engine.max_length:
        raise ServeError(
            Kind.BAD_REQUEST,
            f"`parameters.max_seq_len` is {length}: this model takes at most {model.engine.max_length} tokens",
        )
    # An unpaired surrogate has no UTF-8, so the tokenizer can't read it; a character for a character keeps the offsets.
    readable = [Question(*(SURROGATE.sub("\ufffd", text) for text in question)) for question in request.questions]
    try:
        return make_windows(
            model.tokenizer,
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


def best_spans(
    prepared: PreparedRequest, model: Model, limits: RequestLimits, cancelled: Callable[[], bool] = never
) -> list[list[Span]]:
    """The best spans of each question, best first, `top_k` or fewer, never none; ServeError as default_predict_fn says.

    A context without any token (white space, control characters) gets the empty answer at 0 to 0 with score 0.
    """
    parameters = prepared.request.parameters
    start, end = model.engine.logits(prepared.windows, cancelled)
    decoding = replace(
        SERVING,
        max_answer_tokens=parameters.max_answer_len,
        n_best=parameters.top_k,
        no_answer=parameters.handle_impossible_answer,
        most_candidate_characters=limits.compared_characters,
        most_answer_characters=limits.answer_characters,
    )
    contexts = [question.context for question in prepared.request.questions]
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
