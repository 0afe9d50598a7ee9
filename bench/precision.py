"""What 16-bit arithmetic costs a model's answers: spans and F1 of bf16 against fp32, with the server's PyTorch engine.

Usage: python -m bench.precision --model out/model.tar.gz [--precision fp16] > bench/results/DATE-precision.md

On a GPU bf16 is the server's default, so run this on each new kind of GPU, with its own model; without one it computes
on the CPU, whose bf16 rounds alike. The questions are SQuAD's dev-v1.1 in the folder BERTH_SQUAD, else the embedded
excerpt's held-out ones. Ends with exit code 1 if more than 0.5 F1 is lost: then set BERTH_PRECISION=fp32 there. Needs
torch and transformers, and no Docker; a model of the demo (`make demo`) will do.
"""

import argparse
import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import this_cpu
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

ROOT = Path(__file__).resolve().parent.parent
LENGTH, STRIDE = 384, 128
"""Tokens of a window, and those that neighbours share: the server's own."""
PARTS = 10
"""Lines of progress for each precision."""


@dataclass(frozen=True, slots=True)
class Answered:
    """One precision's answers, and their exact match and F1 in percent; `engine`: as the server's log names it."""

    engine: str
    spans: Sequence[Span]
    exact_match: float
    f1: float


def answer(files: ModelFiles, precision: str, examples: Sequence[Example]) -> Answered:
    """The best span for each question."""
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
    return Answered(engine.info.description, spans, scores["exact_match"], scores["f1"])


def _windows(tokenizer: PairTokenizer, examples: Sequence[Example], length: int) -> list[Window]:
    return make_windows(tokenizer, examples, length, min(STRIDE, length // 2), serving=Serving(shrink_stride=True))


def same_spans(one: Sequence[Span], other: Sequence[Span]) -> float:
    """To how many questions both give the same span, in percent."""
    same = [(mine.start, mine.end) == (its.start, its.end) for mine, its in zip(one, other, strict=True)]
    return 100 * sum(same) / len(same)


def render(title: str, lines: Sequence[str], full: Answered, less: Answered) -> str:
    """The page of results."""
    text = [f"# {title}", "", *lines, "", "| engine | exact match | F1 | same spans |", "|---|---:|---:|---:|"]
    for each in (full, less):
        same = f"{same_spans(each.spans, full.spans):.2f} %"
        text.append(f"| {each.engine} | {each.exact_match:.2f} | {each.f1:.2f} | {same} |")
    allowed = f"{'more than' if loses_too_much(full, less) else 'within'} the {MAX_F1_LOSS} that may be lost"
    advice = ": serve fp32" if loses_too_much(full, less) else ""
    return "\n".join([*text, "", f"F1 changes by {less.f1 - full.f1:+.2f}, {allowed}{advice}."])


def loses_too_much(full: Answered, less: Answered) -> bool:
    """Whether the answers of less precision are not good enough to be anybody's default."""
    return full.f1 - less.f1 > MAX_F1_LOSS


def main(words: Sequence[str]) -> int:
    options = _parse(words)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks
    import torch
    import transformers

    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("berth: error: torch finds no GPU here: leave --device out to compute on the CPU.")
    data = _data(options.data)
    try:
        examples = read(data)
        examples = random.Random(0).sample(examples, min(len(examples), options.questions))
        with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
            files = find(_model_folder(options.model, Path(scratch)))
            full, less = (answer(files, precision, examples) for precision in ("fp32", options.precision))
    except (ArchiveError, DataError, ModelFilesError) as error:
        sys.exit(f"berth: error: {error}")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else this_cpu()
    command = shlex.join(["python", "-m", "bench.precision", *words])
    lines = [
        f"`{command}`, {device}, torch {torch.__version__}, transformers {transformers.__version__}; {len(examples)} "
        f"questions of {data.name}, windows of {LENGTH} tokens.",
    ]
    print(render(f"{options.precision} against fp32, {time.strftime('%Y-%m-%d')}", lines, full, less))
    return 1 if loses_too_much(full, less) else 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.precision", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="a model folder or model.tar.gz")
    parser.add_argument("--precision", choices=("bf16", "fp16"), default="bf16", help="default: %(default)s")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the GPU if there is one")
    parser.add_argument("--data", type=Path, help="SQuAD data in place of dev-v1.1 or the excerpt")
    parser.add_argument("--questions", type=int, default=MOST_QUESTIONS, help="at most; default: %(default)s")
    return parser.parse_args(words)


def _data(given: Path | None) -> Path:
    folder = os.environ.get("BERTH_SQUAD")
    default = Path(folder) / "dev-v1.1.json.xz" if folder else ROOT / "sample" / "squad-heldout.json.xz"
    return given or default


def _model_folder(model: Path, scratch: Path) -> Path:
    """The model's folder; an archive is unpacked below `scratch`."""
    if model.is_file():
        unpack(model, scratch / "model")
        return scratch / "model"
    return model


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
