"""What 16-bit arithmetic costs: answers and F1 of bf16 against fp32, with the server's PyTorch engine.

Usage: python -m bench.precision --model out/model.tar.gz [--precision fp16] > bench/results/DATE-precision.md

On a GPU bf16 is the server's default, so run this with your model on each new kind of GPU. Without a GPU it computes on
the CPU, whose bf16 rounds in the same way. The questions are SQuAD's dev-v1.1 in the folder BERTH_SQUAD, or the
excerpt's held-out ones. Exit code 1 if more than 0.5 F1 is lost: then set BERTH_PRECISION=fp32 there. Needs torch and
transformers, but not Docker. The demo's model (`make demo`) is sufficient.
"""

import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import program, report, squad
from berth.common.errors import UserError
from berth.contract.archive import ArchiveError, unpack
from berth.qa import metrics
from berth.qa.spans import EVALUATION, Span, predict
from berth.qa.squad import DataError, Example, read
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Serving, Window, make_windows
from berth.runtime.cpus import model_threads
from berth.runtime.engines.engine import logits_of_all
from berth.runtime.engines.model_folder import ModelFiles, ModelFilesError, find
from berth.runtime.engines.quantization import MAX_F1_LOSS, MOST_QUESTIONS

LENGTH, STRIDE = 384, 128
"""Tokens of a window, and tokens that neighbours share: the server's defaults."""
PARTS = 10
"""Progress lines per precision."""


@dataclass(frozen=True, slots=True)
class PrecisionResult:
    """One precision's answers, with exact match and F1 in percent. engine: its name in the server's log."""

    engine: str
    spans: Sequence[Span]
    exact_match: float
    f1: float


def answer(files: ModelFiles, precision: str, examples: Sequence[Example]) -> PrecisionResult:
    """Answer all examples with one precision."""
    from berth.runtime.engines.pytorch import PyTorchEngine

    engine = PyTorchEngine(files, model_threads(), precision)
    windows = _windows(engine.tokenizer, examples, min(LENGTH, engine.info.max_length))
    logits = []
    for part in range(PARTS):
        first, last = (len(windows) * each // PARTS for each in (part, part + 1))
        logits += logits_of_all(engine, windows[first:last])
        print(f"{precision} has answered {100 * (part + 1) // PARTS} % of {len(examples)}", file=sys.stderr)
    contexts = [example.context for example in examples]
    best = predict(windows, [row.start for row in logits], [row.end for row in logits], contexts, EVALUATION)
    spans = [each[0] for each in best]
    predicted = {example.id: span.answer for example, span in zip(examples, spans, strict=True)}
    scores = metrics.evaluate(predicted, examples)
    return PrecisionResult(engine.info.description, spans, scores["exact_match"], scores["f1"])


def _windows(tokenizer: PairTokenizer, examples: Sequence[Example], length: int) -> list[Window]:
    return make_windows(tokenizer, examples, length, min(STRIDE, length // 2), serving=Serving(shrink_stride=True))


def same_spans(one: Sequence[Span], other: Sequence[Span]) -> float:
    """Percent of the questions to which both give the same span."""
    same = [(mine.start, mine.end) == (its.start, its.end) for mine, its in zip(one, other, strict=True)]
    return 100 * sum(same) / len(same)


def render(full: PrecisionResult, less: PrecisionResult) -> list[str]:
    """The table and the verdict."""
    rows = []
    for each in (full, less):
        same = f"{same_spans(each.spans, full.spans):.2f} %"
        rows.append(report.row(each.engine, f"{each.exact_match:.2f}", f"{each.f1:.2f}", same))
    allowed = f"{'more than' if loses_too_much(full, less) else 'within'} the allowed loss of {MAX_F1_LOSS}"
    advice = ": serve fp32" if loses_too_much(full, less) else ""
    table = report.table(["engine", " exact match", " F1", " same spans"], rows)
    return [*table, "", f"F1 changes by {less.f1 - full.f1:+.2f}, {allowed}{advice}."]


def loses_too_much(full: PrecisionResult, less: PrecisionResult) -> bool:
    """Whether the lower precision loses too much F1 to be a default."""
    return full.f1 - less.f1 > MAX_F1_LOSS


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("precision", __doc__)
    parser.add_argument("--model", type=Path, required=True, help="a model folder or model.tar.gz")
    parser.add_argument("--precision", choices=("bf16", "fp16"), default="bf16", help="default: %(default)s")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU if there is one")
    parser.add_argument("--questions", type=program.positive, default=MOST_QUESTIONS, help="default: %(default)s")
    options = parser.parse_args(words)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("torch finds no GPU here: omit --device to compute on the CPU.")
    data = squad.squad_file("heldout")
    try:
        examples = read(data)
        examples = random.Random(0).sample(examples, min(len(examples), options.questions))
        with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
            files = find(_model_folder(options.model, Path(scratch)))
            full, less = (answer(files, precision, examples) for precision in ("fp32", options.precision))
    except (ArchiveError, DataError, ModelFilesError) as error:
        raise UserError(str(error)) from None
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    setting = f"{program.setting('precision', words)}, {device}; {len(examples)} questions of {data.name}, windows of "
    print(report.page(f"{options.precision} against fp32", [f"{setting}{LENGTH} tokens."], *render(full, less)))
    return 1 if loses_too_much(full, less) else 0


def _model_folder(model: Path, scratch: Path) -> Path:
    """The model's folder; an archive is unpacked in `scratch`."""
    if model.is_file():
        unpack(model, scratch / "model")
        return scratch / "model"
    return model


if __name__ == "__main__":
    program.end_with(main)
