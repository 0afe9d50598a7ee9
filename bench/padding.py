"""Training with batches of similar length against the usual recipe, which pads every window to 384 tokens.

Usage: python -m bench.padding [> bench/results/DATE-padding.md]    needs the engine and the training image

Jobs with and without padding alternate, with the same image, model, questions and steps. The ratio of a pair compares
their samples per second; the result is the median of the pairs. The questions are SQuAD v1.1's in the folder
BERTH_SQUAD, or the embedded excerpt's, whose contexts are shorter than most. Progress goes to stderr.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import program, report, squad
from berth.common import engine
from berth.common.errors import UserError
from berth.images.pins import pins
from berth.local.demo import pretrained_model, read_member
from berth.local.train.job import TrainingJob, run_training_job

PAIRS = 3
QUESTIONS = 160
SETTINGS = {
    "do_train": "True",
    "num_train_epochs": "1",
    "per_device_train_batch_size": "4",
    "max_seq_length": "384",
    "doc_stride": "128",
    "learning_rate": "3e-5",
}
IMAGE = f"berth-train:{pins.DEFAULT_PROFILE}"


def questions() -> tuple[str, dict[str, object]]:
    """The name of the file, and QUESTIONS of its questions at equal distances, so that all lengths occur."""
    path = squad.squad_file("train")
    every_question = [
        {"context": context, "qas": [question]} for question, context in squad.pairs(squad.read_articles(path))
    ]
    selected = every_question[:: max(1, len(every_question) // QUESTIONS)][:QUESTIONS]
    return path.name, {"version": "1.1", "data": [{"title": "", "paragraphs": selected}]}


def samples_per_second(data: Path, out: Path, *, padded: bool) -> float:
    """Train one job; samples per second, as the job reports them."""
    settings = SETTINGS | {"pad_to_max_length": str(padded)}
    job = TrainingJob({"train": data}, out, model=pretrained_model(), hyperparameters=settings)
    result = run_training_job(job, image=IMAGE, log=lambda _: None, say=lambda _: None)
    if result.model_archive is None:
        raise UserError(f"the job failed: {result.reason}")
    figure = float(json.loads(read_member(result.model_archive, "metrics.json"))["train_samples_per_second"])
    print(f"{'padded' if padded else 'by length'}: {figure:.2f} samples/s", file=sys.stderr)
    return figure


def main(words: Sequence[str]) -> int:
    program.make_parser("padding", __doc__).parse_args(words)
    name, squad = questions()
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "squad.json", Path(folder) / "out"
        data.write_text(json.dumps(squad))
        pairs = [
            (samples_per_second(data, out, padded=False), samples_per_second(data, out, padded=True))
            for _ in range(PAIRS)
        ]
    how = f"{QUESTIONS} questions of {name}, MiniLM-L6, batches of 4, one process"
    setting = f"{program.setting('padding', words, engine.connect())}; {how}."
    rows = [
        report.row(number, f"{ours:.2f}", f"{peer:.2f}", f"{ours / peer:.2f}")
        for number, (ours, peer) in enumerate(pairs, 1)
    ]
    lines = report.table(["pair", " by length, samples/s", " padded, samples/s", " ratio"], rows)
    median = f"Median ratio: {statistics.median(ours / peer for ours, peer in pairs):.2f}"
    print(report.page("Batches by length against padding to 384 tokens", [setting], *lines, "", median))
    return 0


if __name__ == "__main__":
    program.end_with(main)
