"""Train run_qa on this machine's GPU, without Docker: samples per second with and without padding, F1 after an epoch.

Usage: python -m bench.gpu_training --model FOLDER --squad FOLDER [--save FOLDER] [> bench/results/DATE-gpu-training.md]

--model: a BERT with its tokenizer, such as MiniLM. The speed is that of a BERT-base with random weights and this
tokenizer, in bf16, with batches of 32 windows of at most 384 tokens. Jobs with batches of similar lengths (the default)
and with padding to 384 tokens (`pad_to_max_length`, the default of transformers' run_qa.py) take turns. Then the model
of --model is trained on SQuAD v1.1 for one epoch and evaluated on all of dev-v1.1; --save keeps it for bench.precision.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import program, report, squad
from bench.jobs import run_qa
from berth.common.errors import UserError

RECIPE = {
    "do_train": "True",
    "per_device_train_batch_size": "32",
    "max_seq_length": "384",
    "doc_stride": "128",
    "bf16": "True",
    "save_strategy": "no",
    "logging_steps": "50",
}
SPEED = RECIPE | {"do_eval": "False", "max_train_samples": "16000", "max_steps": "400"}
EPOCH = RECIPE | {"do_eval": "True", "num_train_epochs": "1", "learning_rate": "2e-4", "warmup_ratio": "0.1"}
TRAIN, DEV = squad.FILES["train"], squad.FILES["heldout"]


def train(data: Path, model: Path, settings: Mapping[str, str], save: Path | None = None) -> dict[str, Any]:
    """Run a job and return its metrics. save: a folder for its model. UserError with the log's end if it fails."""
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
        base = Path(scratch)
        run_qa.lay_out(base, model.absolute(), settings, "train.json", squad.read_text(data / TRAIN))
        validation = base / "input/data/validation"
        validation.mkdir()
        (validation / "dev.json").write_text(squad.read_text(data / DEV))
        ended = run_qa.run(base, "VmHWM")
        print(f"run_qa ended with {ended.code} after {ended.seconds:.0f} s", file=sys.stderr, flush=True)
        if ended.code:
            raise UserError(f"run_qa ended with exit code {ended.code}:\n{ended.log[-3000:]}")
        if save:
            shutil.copytree(base / "model", save, dirs_exist_ok=True)
        metrics: dict[str, Any] = json.loads((base / "model/metrics.json").read_text())
        return metrics


def random_bert_base(tokenizer: Path, folder: Path) -> None:
    """Save a BERT-base for question answering with random weights, and the tokenizer of another model."""
    from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

    words = AutoTokenizer.from_pretrained(tokenizer)
    BertForQuestionAnswering(BertConfig(vocab_size=len(words))).save_pretrained(folder)
    words.save_pretrained(folder)


def compare(data: Path, model: Path, pairs: int) -> str:
    """Rows of samples per second, default and padded, which take turns, and the median of the ratios."""
    figures: dict[str, list[float]] = {"False": [], "True": []}
    for _ in range(pairs):
        for padded, speeds in figures.items():
            metrics = train(data, model, SPEED | {"pad_to_max_length": padded})
            speeds.append(float(metrics["train_samples_per_second"]))
    ratio = statistics.median(one / other for one, other in zip(figures["False"], figures["True"], strict=True))
    rows = [
        report.row(
            name, f"{statistics.median(figures[padded]):.0f}", ", ".join(f"{each:.0f}" for each in figures[padded])
        )
        for name, padded in (("batches of similar lengths", "False"), ("padded to 384 tokens", "True"))
    ]
    return "\n".join([*report.table(["BERT-base, bf16", " samples/s", "each run"], rows), "", f"Ratio: {ratio:.2f}"])


def main(words: Sequence[str]) -> int:
    import torch

    options = _parse(words)
    if not torch.cuda.is_available():
        raise UserError("torch finds no GPU here: run this on a machine where nvidia-smi lists one.")
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
        random_bert_base(options.model, Path(scratch))
        table = compare(options.squad, Path(scratch), options.pairs)
    metrics = train(options.squad, options.model, EPOCH, options.save)
    epoch = (
        f"One epoch of SQuAD v1.1, model {options.model.name}: {metrics['train_runtime']:.0f} s, "
        f"{metrics['train_samples_per_second']:.0f} samples/s. On dev-v1.1: exact match "
        f"{metrics['eval_exact_match']:.2f}, F1 {metrics['eval_f1']:.2f}."
    )
    setting = f"{program.setting('gpu_training', words)}, {torch.cuda.get_device_name()}."
    print(report.page("run_qa on a GPU", [setting], table, "", epoch))
    return 0


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = program.make_parser("gpu_training", __doc__)
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="a BERT with its tokenizer")
    parser.add_argument("--squad", type=Path, required=True, metavar="FOLDER", help=f"with {TRAIN} and {DEV}")
    parser.add_argument("--pairs", type=program.positive, default=2, metavar="N", help="default: %(default)s")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="keep the trained model here")
    return parser.parse_args(words)


if __name__ == "__main__":
    program.end_with(main)
