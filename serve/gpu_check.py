"""The check `inference` of `gpu-check`: a model with random weights answers one question repeatedly.

It does what the server does, without HTTP: find and load the model, check the question, make windows, run the engine,
make the answer.
"""

import statistics
import string
import tempfile
import time
from pathlib import Path
from typing import Any

from berth.runtime.cpus import model_threads
from berth.runtime.gpu.bench.record import Measured

QUESTION = "What does the image do before it is used?"
CONTEXT = "The image checks the GPUs of its host before it is used, and says in a table what they do. " * 12
# On a GPU the sizes of MiniLM-L6, a common model of endpoints; on a CPU a small model that only runs the same code.
MODEL: dict[str, dict[str, Any]] = {
    "cuda": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "cpu": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64},
}
WARM_UP, QUESTIONS = 5, {"cuda": 50, "cpu": 5}


def inference(device: str) -> Measured:
    """The median latency of a question in milliseconds.

    ArithmeticError if an answer is not the text at its offsets; RuntimeError if the engine is on another device.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    from berth.runtime.engines import choose
    from berth.runtime.engines.choose import EngineSettings
    from berth.serve.limits import RequestLimits
    from berth.serve.pipeline import QuestionAnsweringPipeline

    with tempfile.TemporaryDirectory() as folder:
        _save(Path(folder), MODEL[device])
        model = choose.load(Path(folder), EngineSettings(model_threads(), cuda=True), print)
    described = model.engine.info.description
    if not described.endswith(f" on {device}"):
        raise RuntimeError(f"the engine is {described}, not on {device}")
    pipeline = QuestionAnsweringPipeline(model, RequestLimits())
    seconds = []
    for _ in range(WARM_UP + QUESTIONS[device]):
        began = time.perf_counter()
        answer = pipeline(question=QUESTION, context=CONTEXT)
        seconds.append(time.perf_counter() - began)
        if answer["answer"] != CONTEXT[answer["start"] : answer["end"]]:
            raise ArithmeticError(f"the answer {answer['answer']!r} is not the text at its offsets")
    timed = sorted(seconds[WARM_UP:])
    return Measured(
        statistics.median(timed) * 1e3,
        "ms",
        note=f"a question; {described}",
        details={
            "engine": described,
            "questions": len(timed),
            "latency_ms_90": timed[int(0.9 * len(timed))] * 1e3,
        },
    )


def _save(folder: Path, sizes: dict[str, Any]) -> None:
    """Save a question-answering BERT with random weights, and a tokenizer that makes a token of every letter."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering, BertTokenizer

    letters = string.ascii_lowercase + string.digits + string.punctuation
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    torch.manual_seed(0)
    BertForQuestionAnswering(BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)
    BertTokenizer(vocab={word: index for index, word in enumerate(words)}).save_pretrained(folder)
