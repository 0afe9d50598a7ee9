"""Our model for handlers, with the interface of the pipeline that transformers 5.3 removed.

Users' handlers import `load_pipeline` from here, so its name and module must not change.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from berth.runtime.cpus import model_threads
from berth.runtime.engines import choose
from berth.runtime.engines.choose import LoadedModel
from berth.runtime.engines.engine import logits_of_all
from berth.runtime.gpu.driver import count_gpus, torch_cuda
from berth.serve.limits import RequestLimits
from berth.serve.questions.fields import keyword_fault, parse
from berth.serve.questions.question_answering import ModelTraits, answers, prepare

log = logging.getLogger(__name__)


def load_pipeline(model_dir: str | Path) -> "QuestionAnsweringPipeline":
    """Load the question-answering model in a folder. It uses this process's threads and GPU, if it has one, and the
    precision and limits that the environment sets. ModelFilesError if it can't be served.
    """
    from berth.serve.configuration.settings import (  # late: not needed by handlers with their own model
        limits_of,
        read_settings,
    )

    share = os.environ.get("OMP_NUM_THREADS", "")  # the server sets it for each worker
    threads = int(share) if share.isdecimal() else model_threads()
    cuda = torch_cuda() is not None and count_gpus(Path("/"), os.environ) > 0
    loaded = choose.load(Path(model_dir), choose.settings(os.environ, threads, cuda=cuda), log.info)
    return QuestionAnsweringPipeline(loaded, limits_of(read_settings(os.environ)))


class QuestionAnsweringPipeline:
    """`model(question="…", context="…", top_k=3)`, `model({"question": "…", "context": "…"})` or a list of these."""

    def __init__(self, loaded: LoadedModel, limits: RequestLimits) -> None:
        self._loaded = loaded
        self._traits = ModelTraits.of(loaded, limits)

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """`{"score", "start", "end", "answer"}`, a list of these if top_k is more than 1, and a list of either for a
        list of questions. `question` and `context` may be lists too; a single context is used for all questions.

        TypeError for unknown keywords, ServeError for questions that /invocations would refuse.
        """
        questions: Any = inputs[0] if len(inputs) == 1 else list(inputs)
        if not inputs:
            questions = _paired(keywords.pop("question", None), keywords.pop("context", None))
        if isinstance(questions, dict) and "inputs" in questions:
            raise TypeError("the pipeline takes the value of `inputs`, not the whole body: model(data['inputs'])")
        if fault := keyword_fault(keywords):
            raise TypeError(f"the pipeline got an {fault}")
        return self.answer(questions, keywords)

    def answer(self, inputs: Any, parameters: Mapping[str, Any]) -> Any:
        """The answers to `inputs` and `parameters` of a body; ServeError if /invocations would refuse them."""
        prepared = prepare(parse({"inputs": inputs, "parameters": parameters}), self._traits)
        return answers(prepared, logits_of_all(self._loaded.engine, prepared.windows))


def _paired(question: Any, context: Any) -> Any:
    """The keywords `question` and `context` as one question, or as a list of questions."""
    if not isinstance(question, Sequence) or isinstance(question, str):
        return {"question": question, "context": context}
    contexts = [context] * len(question) if isinstance(context, str) else context
    return [{"question": one, "context": other} for one, other in zip(question, contexts, strict=True)]
