"""Our model as a handler's functions call it: with the interface of the pipeline that transformers 5.3 removed."""

from collections.abc import Sequence
from typing import Any

from berth.runtime.engines.choose import LoadedModel
from berth.runtime.engines.engine import logits_of_all
from berth.serve.limits import RequestLimits
from berth.serve.question_answering import Reading, answers, prepare
from berth.serve.request import parse


class QuestionAnsweringPipeline:
    """`model(question="…", context="…", top_k=3)`, `model({"question": "…", "context": "…"})` or a list of these."""

    def __init__(self, loaded: LoadedModel, limits: RequestLimits) -> None:
        self._loaded = loaded
        self._reading = Reading.of(loaded, limits)

    def __call__(self, *inputs: Any, **given: Any) -> Any:
        """`{"score", "start", "end", "answer"}`, a list of these if top_k is more than 1, and a list of either for a
        list of questions. `question` and `context` may be lists too, and one context goes with every question.
        ServeError for what /invocations would refuse.
        """
        asked: Any = inputs[0] if len(inputs) == 1 else list(inputs)
        if not inputs:
            asked = _paired(given.pop("question", None), given.pop("context", None))
        prepared = prepare(parse({"inputs": asked, "parameters": given}), self._reading)
        return answers(prepared, logits_of_all(self._loaded.engine, prepared.windows))


def _paired(question: Any, context: Any) -> Any:
    """The questions with their contexts, in the pipeline's second form."""
    if not isinstance(question, Sequence) or isinstance(question, str):
        return {"question": question, "context": context}
    contexts = [context] * len(question) if isinstance(context, str) else context
    return [{"question": one, "context": other} for one, other in zip(question, contexts, strict=True)]
