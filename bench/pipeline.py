"""Our answers next to those of the pipeline that transformers 5.3 removed: same weights, same questions.

Usage: python -m bench.pipeline --model out/model.tar.gz [> bench/results/DATE-pipeline.md]
       python -m bench.pipeline --write tests/unit/serve/former_pipeline.jsonl

Prints a table: how many best answers are equal, and the largest difference of scores. Without --model the model is
MiniLM with a seeded head, and --write saves the pipeline's answers, with which a test compares ours. Asks the first
questions of sample/squad-heldout.json.xz. Run `make setup-tests` first. transformers 4.57 and the default profile's
torch are installed from the package index into a temporary environment; pip's output goes to stderr.
"""

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import program, report, squad
from bench.serving import sides
from berth.images.pins import pins, pins_file

TRANSFORMERS = "transformers==4.57.6"  # the last 4.x
FOUR = {"top_k": 4}
SHORT = {"max_seq_len": 96, "doc_stride": 32}  # several windows for most paragraphs
SETTINGS: tuple[tuple[int, Mapping[str, Any]], ...] = (
    (500, {}),
    (50, FOUR),
    (50, SHORT),
    (50, SHORT | {"top_k": 3, "max_answer_len": 40}),
    (50, {"align_to_words": False}),
    (50, FOUR | {"align_to_words": False}),
    (50, {"handle_impossible_answer": True}),
    (50, SHORT | FOUR | {"handle_impossible_answer": True}),
    (20, {"max_question_len": 4}),
)
"""The number of questions, and their parameters."""

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One question. number: the index of its parameters in SETTINGS."""

    number: int
    question: str
    context: str

    @property
    def parameters(self) -> Mapping[str, Any]:
        return SETTINGS[self.number][1]


@dataclass(frozen=True, slots=True)
class Difference:
    """Compares the answers to one question. same: the best answers are the same span; score: the largest difference of
    the scores of answers at the same position.
    """

    same: bool
    score: float


def cases() -> list[Case]:
    """All cases, always the same ones."""
    pairs = squad.pairs(squad.read_articles(squad.excerpt_file("heldout")))
    return [
        Case(number, question["question"], context)
        for number, (count, _) in enumerate(SETTINGS)
        for question, context in pairs[:count]
    ]


def difference(ours: Any, theirs: Any) -> Difference:
    """Compares our answer or list of answers with the pipeline's, whose scores can exceed 1 and are capped.

    The pipeline returns a single answer without a list.
    """
    mine, its = (value if isinstance(value, list) else [value] for value in (ours, theirs))
    if len(mine) != len(its):
        return Difference(same=False, score=1.0)
    same = all(mine[0][name] == its[0][name] for name in ("start", "end", "answer"))
    apart = (abs(one["score"] - min(1.0, other["score"])) for one, other in zip(mine, its, strict=True))
    return Difference(same, max(apart))


def pipeline_answers(model: Path, questions: Sequence[Case], scratch: Path) -> list[Any]:
    """The answers of transformers 4.57, installed in a temporary environment."""
    place = scratch / "transformers-4.57"
    venv.create(place, with_pip=True)
    python = str(place / "bin/python")
    profile = pins_file.load().profile(pins.DEFAULT_PROFILE)
    index = ["--extra-index-url", profile.torch_index] if profile.torch_index else []
    install = [python, "-m", "pip", "install", "--quiet", *index, TRANSFORMERS, f"torch=={profile.torch}", "numpy"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    lines = "".join(json.dumps([case.question, case.context, case.parameters]) + "\n" for case in questions)
    program = Path(__file__).parent / "serving" / "former_pipeline.py"
    process = subprocess.run(
        [python, str(program), str(model)], input=lines, check=True, stdout=subprocess.PIPE, text=True
    )
    return [json.loads(line) for line in process.stdout.splitlines()]


def our_answers(model: Path, questions: Sequence[Case]) -> list[Any]:
    """The answers of our pipeline, in this process."""
    from berth.runtime.cpus import model_threads
    from berth.runtime.engines import choose
    from berth.runtime.engines.choose import EngineSettings
    from berth.serve.limits import RequestLimits
    from berth.serve.pipeline import QuestionAnsweringPipeline

    loaded = choose.load(model, EngineSettings(model_threads(), folder=model.parent / "graph"), _log)
    answer = QuestionAnsweringPipeline(loaded, RequestLimits())
    return [answer(question=case.question, context=case.context, **case.parameters) for case in questions]


def render(questions: Sequence[Case], differences: Sequence[Difference]) -> str:
    """A table with a row per setting."""
    rows = []
    for number, (count, parameters) in enumerate(SETTINGS):
        compared = [each for case, each in zip(questions, differences, strict=True) if case.number == number]
        same = sum(each.same for each in compared)
        name = f"`{json.dumps(dict(parameters))}`" if parameters else "none"
        rows.append(report.row(name, count, same, f"{max(each.score for each in compared):.1e}"))
    columns = ["parameters", " questions", " same best answer", " largest difference of scores"]
    return "\n".join(report.table(columns, rows))


def _log(line: str) -> None:
    print(line, file=sys.stderr)


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("pipeline", __doc__)
    parser.add_argument("--model", type=Path, help="a folder or model.tar.gz (default: MiniLM with a seeded head)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="save the pipeline's answers, one per line")
    options = parser.parse_args(words)
    questions = cases()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder:
        scratch = Path(folder)
        model = _model(options.model, scratch)
        theirs = pipeline_answers(model, questions, scratch)
        ours = our_answers(model, questions)
    if options.write:
        options.write.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in theirs), "utf-8")
    print(render(questions, [difference(*pair) for pair in zip(ours, theirs, strict=True)]))
    return 0


def _model(model: Path | None, scratch: Path) -> Path:
    if model:
        return sides.model_folder(model, scratch)
    from tests.unit.small_models import save_seeded_minilm

    save_seeded_minilm(scratch / "model")
    return scratch / "model"


if __name__ == "__main__":
    program.end_with(main)
