"""Kill run_qa while it writes a checkpoint of several gigabytes; it must resume from the previous one.

Usage: python -m bench.large_checkpoint [--layers 24] > bench/results/DATE-large-checkpoint.md

The model is a BERT of bert-large's width with random weights: with 24 layers it has 335 million parameters, and weights
plus AdamW's state have 4 GB. One job runs its two steps to the end. Another is killed by SIGKILL in the middle of its
second checkpoint and started again. Both must end with the same weights. Needs four times the checkpoint's size on
disk and twice its size in memory. Exit code 1 if anything was lost.
"""

import json
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import program, report
from bench.jobs import run_qa, saved_checkpoints, small
from bench.jobs.run_qa import JobEnd
from berth.common.errors import UserError
from berth.local.demo import pretrained_model

WIDTH = 1024
HYPERPARAMETERS = {
    "do_train": "true",
    "per_device_train_batch_size": "1",
    "max_steps": "2",
    "save_steps": "1",
    "save_total_limit": "2",
    "max_seq_length": "64",
    "doc_stride": "16",
    "log_seconds": "0",
    "export_openvino": "false",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Three starts: an uninterrupted job, a killed job, and the second start of the killed one. Sizes are in bytes.

    complete: names of the complete checkpoints after the kill; partial_bytes: written of the next one; metrics: of both
    jobs.
    """

    model: int
    checkpoint: int
    whole: JobEnd
    killed: JobEnd
    restarted: JobEnd
    partial_bytes: int
    complete: Sequence[str]
    metrics: tuple[Mapping[str, Any], Mapping[str, Any]]


def size(folder: Path) -> int:
    """The bytes in a folder; its files may disappear meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def measure(folder: Path, layers: int) -> Measured:
    """Run both jobs in `folder`; UserError if the uninterrupted one fails."""
    small.write_model(folder / "model", pretrained_model(), layers, WIDTH, WIDTH // 64, 4 * WIDTH)
    whole_base, killed_base = folder / "whole", folder / "killed"
    for base in (whole_base, killed_base):
        run_qa.lay_out(base, folder / "model", HYPERPARAMETERS, "train.json", json.dumps(small.excerpt("train", 20)))
    whole = run_qa.run(whole_base, "VmHWM")
    if whole.code:
        raise UserError(f"run_qa ended with {whole.code}: {whole.log[-2000:]}")
    checkpoint = size(next((whole_base / "checkpoints").glob("checkpoint-2-*")))
    checkpoints = killed_base / "checkpoints"

    def is_half_written() -> bool:
        return sum(size(path) for path in checkpoints.glob(".partial-*/checkpoint-2")) > checkpoint / 2

    killed = run_qa.run(killed_base, "VmHWM", is_half_written)
    partial_bytes = sum(size(path) for path in checkpoints.glob(".partial-*"))
    complete = saved_checkpoints.whole(checkpoints)
    restarted = run_qa.run(killed_base, "VmHWM")
    metrics = (_metrics(whole_base), _metrics(killed_base))
    return Measured(size(folder / "model"), checkpoint, whole, killed, restarted, partial_bytes, complete, metrics)


def _metrics(base: Path) -> dict[str, Any]:
    path = base / "model/metrics.json"
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def faults(measured: Measured) -> list[str]:
    """A sentence per loss."""
    lost = []
    if measured.restarted.code:
        lost.append(f"the second start ended with {measured.restarted.code}: {measured.restarted.log[-2000:]}")
    if measured.killed.code != -signal.SIGKILL or [name.split("-")[1] for name in measured.complete] != ["1"]:
        lost.append(
            f"after the kill (exit code {measured.killed.code}) the complete checkpoints are {list(measured.complete)}"
        )
    if "going on from" not in measured.restarted.log:
        lost.append("the second start did not resume from a checkpoint")
    expected, resumed = (metrics.get("weights_sha256") for metrics in measured.metrics)
    if expected != resumed:
        lost.append(f"the weights differ from the uninterrupted job's: {resumed}, not {expected}")
    return lost


def render(title: str, setting: str, measured: Measured, lost: Sequence[str]) -> str:
    """A page of the figures."""
    seconds = measured.metrics[0]["seconds"]
    rows = [
        ("the model's files", f"{measured.model / 1e9:.2f} GB"),
        ("a checkpoint: model, AdamW's state, manifest", f"{measured.checkpoint / 1e9:.2f} GB"),
        ("the uninterrupted job: two steps, two checkpoints, the model", f"{measured.whole.seconds:.0f} s"),
        ("its steps", f"{seconds.get('training', 0):.0f} s"),
        ("its saves (two checkpoints, the model)", f"{seconds.get('saving', 0):.0f} s"),
        ("its peak memory", f"{measured.whole.memory / 1e9:.2f} GB"),
        ("written of the second checkpoint before the kill", f"{measured.partial_bytes / 1e9:.2f} GB"),
        ("the second start: one step, a checkpoint, the model", f"{measured.restarted.seconds:.0f} s"),
        ("its peak memory", f"{measured.restarted.memory / 1e9:.2f} GB"),
        ("weights of both jobs", "differ" if lost else f"equal, sha256 {measured.metrics[0]['weights_sha256'][:12]}"),
    ]
    lines = [
        line for line in measured.restarted.log.splitlines() if line.startswith(("going on", "step", "train_", "done"))
    ]
    figures = report.table(["", " "], [report.row(name, value) for name, value in rows])
    return report.page(
        title, [f"{setting}."], *figures, "", "Log of the second start:", "", "```", *lines, "```", *lost
    )


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("large_checkpoint", __doc__)
    parser.add_argument("--layers", type=program.positive, default=24, help="default: %(default)s")
    options = parser.parse_args(words)
    setting = program.setting("large_checkpoint", words)
    with tempfile.TemporaryDirectory(prefix="berth-large-checkpoint-") as scratch:
        measured = measure(Path(scratch), options.layers)
        lost = faults(measured)
        page = render("A checkpoint of several gigabytes", setting, measured, lost)
    print(page.replace(scratch, "FOLDER"))
    return 1 if lost else 0


if __name__ == "__main__":
    program.end_with(main)
