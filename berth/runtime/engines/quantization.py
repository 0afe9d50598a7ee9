"""The accuracy that int8 costs a model: its comparison with fp32, the limits, and the call of the process that measures
it, `berth.runtime.engines.quantize`. That process imports OpenVINO and NNCF; this module does not.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from berth.qa.spans import Decoding
from berth.qa.squad import Example
from berth.runtime.engines.graph import GraphError

LEAST_QUESTIONS = 500
"""With fewer questions the loss is too uncertain: one answer of 500 changes F1 by up to 0.2."""
MOST_QUESTIONS = 2000
"""More take minutes and hardly change the figures."""
CALIBRATION_QUESTIONS = 300
"""Questions and windows from which NNCF learns the ranges of the activations; its own default is 300 samples."""
MAX_F1_LOSS = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for an int8 graph."""

    max_f1_loss: float = MAX_F1_LOSS
    """The largest allowed loss of F1, in percentage points."""
    few_questions: bool = False
    """Whether fewer than LEAST_QUESTIONS are accepted."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Measures of both graphs' answers to the same questions: exact match and F1 in percent."""

    questions: int
    fp32_exact_match: float
    fp32_f1: float
    int8_exact_match: float
    int8_f1: float
    same_answers: float
    """The share of questions to which both give the same span, in percent."""

    @property
    def exact_match_loss(self) -> float:
        """The loss by int8 in percentage points; negative if int8 is better."""
        return self.fp32_exact_match - self.int8_exact_match

    @property
    def f1_loss(self) -> float:
        """See `exact_match_loss`."""
        return self.fp32_f1 - self.int8_f1

    def record(self) -> dict[str, float]:
        """All figures by name, for the manifest."""
        figures = {**asdict(self), "exact_match_loss": self.exact_match_loss, "f1_loss": self.f1_loss}
        return {name: round(value, 4) for name, value in figures.items()}

    def sentence(self) -> str:
        """The figures in words."""
        return (
            f"on {self.questions} questions int8 has F1 {self.int8_f1:.2f} where fp32 has {self.fp32_f1:.2f} "
            f"({_lost(self.f1_loss)}), and exact match {self.int8_exact_match:.2f} where fp32 has "
            f"{self.fp32_exact_match:.2f} ({_lost(self.exact_match_loss)}); {self.same_answers:.1f} % of the answers "
            "are the same"
        )


def _lost(points: float) -> str:
    return f"{abs(points):.2f} {'gained' if points < 0 else 'lost'}"


def too_few(questions: int, limits: Limits) -> str:
    """Why this number of questions is too small, as a sentence; empty if it is enough."""
    if questions == 0:
        return "int8 was requested, but there is no question to measure its loss: pass validation data"
    if questions < LEAST_QUESTIONS and not limits.few_questions:
        return (
            f"int8 was requested, but there are only {questions} questions to measure its loss, and {LEAST_QUESTIONS} "
            "are needed: pass more, or accept an uncertain figure (int8_few_questions true, --few-questions)"
        )
    return ""


def refusal(comparison: Comparison, limits: Limits) -> str:
    """Why the int8 graph is not kept, as a sentence with its figures; empty if it is kept."""
    if comparison.f1_loss > limits.max_f1_loss:
        return (
            f"the int8 graph loses {comparison.f1_loss:.2f} F1, more than {limits.max_f1_loss:g}, and is not kept "
            f"({comparison.sentence()}): serve fp32, or allow more (int8_max_f1_loss, --max-f1-loss)"
        )
    return ""


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """How to cut contexts and decode logits: as in the job that trained the model."""

    max_length: int
    stride: int
    decoding: Decoding


def arguments(settings: WindowSettings, limits: Limits) -> list[str]:
    """Settings and limits as arguments of `quantize`."""
    return [
        f"--max-length={settings.max_length}",
        f"--stride={settings.stride}",
        f"--decoding={json.dumps(asdict(settings.decoding))}",
        f"--max-f1-loss={limits.max_f1_loss}",
        *(["--few-questions"] if limits.few_questions else []),
    ]


@dataclass(frozen=True, slots=True)
class CalibrationData:
    """The questions to calibrate a graph with, and to measure it on."""

    calibration: Sequence[Example]
    validation: Sequence[Example]


def add_int8(
    model: Path, questions: CalibrationData, settings: WindowSettings, limits: Limits, say: Callable[[str], None]
) -> None:
    """Add an int8 graph to the graph in the model's folder. It runs in another process, whose output `say` gets.

    GraphError with one sentence if it loses too much or can't be made.
    """
    with TemporaryDirectory(prefix="berth-int8-") as scratch:
        files = {"calibration": questions.calibration, "validation": questions.validation}
        for name, examples in files.items():
            write_examples(Path(scratch) / f"{name}.jsonl", examples)
        data = [word for name in files for word in (f"--{name}", f"{scratch}/{name}.jsonl")]
        run([str(model), str(model / "openvino"), *data, *arguments(settings, limits)], say)


def run(words: Sequence[str], say: Callable[[str], None]) -> None:
    """Run `quantize` with these arguments; GraphError with its last line on stderr if it fails."""
    command = [sys.executable, "-P", "-m", "berth.runtime.engines.quantize", *words]
    with TemporaryFile("w+", errors="replace") as stderr:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True, errors="replace"
        ) as process:
            for line in process.stdout or ():
                say(line.rstrip("\n"))
        stderr.seek(0)
        lines = stderr.read().strip().splitlines()
    if process.returncode < 0:
        raise GraphError(f"no int8 graph could be made (signal {-process.returncode} ended it; memory may be short)")
    if process.returncode:
        raise GraphError((lines or ["no reason was given"])[-1].removeprefix("berth: error: "))


def write_examples(path: Path, examples: Sequence[Example]) -> None:
    """Write one flat JSON row per line, as berth.qa.files reads them. Ids are numbers, because ids of a hub's data may
    repeat.
    """
    with path.open("w", encoding="utf-8") as file:
        for number, example in enumerate(examples):
            row: dict[str, Any] = {
                "id": str(number),
                "question": example.question,
                "context": example.context,
                "answers": [{"text": answer.text, "answer_start": answer.start} for answer in example.answers],
            }
            file.write(json.dumps(row) + "\n")
