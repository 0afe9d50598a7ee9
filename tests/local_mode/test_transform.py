"""SDK v2's Transformer in local mode: a file of records becomes a file of answers, one per line and in order."""

import csv
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

from berth.images.pins import pins
from tests.local_mode.test_sdk_v2 import SERVE
from tests.ports import free_port
from tests.unit.small_models import add_graph, save_tiny_model

PROGRAM = Path(__file__).with_name("transform.py")
JSON_LINES, CSV = "application/jsonlines", "text/csv"
QUESTIONS = [
    {"question": f"Who is number {number}?", "context": f"Number {number} is Anna, and number {number + 1} is Ben."}
    for number in range(40)
]
BAD = 7
"""The position of the record without a question: its answer must be an error."""
WAYS = [(split, strategy) for split in ("Line", "None") for strategy in ("MultiRecord", "SingleRecord")]


def write_questions(folder: Path) -> dict[str, Path]:
    """The questions as JSON lines and as CSV, by content type."""
    lines = [json.dumps({"inputs": each}) for each in QUESTIONS]
    lines[BAD] = '{"inputs": 3}'
    rows = io.StringIO()
    csv.writer(rows).writerows(
        [each["question"] if row != BAD else "", each["context"]] for row, each in enumerate(QUESTIONS)
    )
    files = {JSON_LINES: folder / "questions.jsonl", CSV: folder / "questions.csv"}
    for file, text in zip(files.values(), ("\n".join(lines) + "\n", rows.getvalue()), strict=True):
        file.write_text(text, newline="")
    return files


def check(answers: list[dict[str, Any]]) -> None:
    assert len(answers) == len(QUESTIONS)
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers, strict=True)):
        if number == BAD:
            assert "error" in answer, answer
        else:
            assert answer["answer"] == question["context"][int(answer["start"]) : int(answer["end"])]


def answers_of(content_type: str, texts: list[str]) -> list[dict[str, Any]]:
    """The answers in all returned bodies, in order; AssertionError for a CSV without its columns."""
    if content_type == JSON_LINES:
        return [json.loads(line) for text in texts for line in text.splitlines() if line.strip()]
    names = ("score", "start", "end", "answer", "error")
    rows = [row for text in texts for row in csv.reader(io.StringIO(text, newline="")) if row]
    assert {len(row) for row in rows} == {len(names)}, rows
    answers = [dict(zip(names, row, strict=True)) for row in rows if tuple(row) != names]
    return [{name: text for name, text in row.items() if name != "error" or text} for row in answers]


def test_batch_transforms(run_sdk: Any, tmp_path: Path) -> None:
    """Runs the example of serve/README.md unchanged, and every way to split JSON lines and CSV without a header."""
    model = tmp_path / "out/model"
    save_tiny_model(model)
    add_graph(model)
    archive = tmp_path / "out/model.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(model, ".")
    (tmp_path / "questions").mkdir()
    (tmp_path / "others").mkdir()
    lines = write_questions(tmp_path / "questions")[JSON_LINES]
    (tmp_path / "questions/questions.csv").unlink()
    files = write_questions(tmp_path / "others")
    (tmp_path / ".sagemaker").mkdir()
    (tmp_path / ".sagemaker/config.yaml").write_text(
        f"local: {{serving_port: {free_port()}, container_root: {tmp_path}}}\n"
    )
    page = (pins.ROOT / "serve/README.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(from sagemaker\.local .*?)^```", page, re.MULTILINE | re.DOTALL)
    assert "logs=False" in example
    cuts = [(str(file), kind, split, strategy) for kind, file in files.items() for split, strategy in WAYS]
    job = {
        "example": example.replace("/home/me", str(tmp_path)).replace("berth-serve:cpu", SERVE),
        "image_uri": SERVE,
        "model_data": str(archive),
        "cuts": cuts,
    }
    exchanges, _ = run_sdk(PROGRAM, json.dumps(job))
    check(answers_of(JSON_LINES, [(tmp_path / f"answers/{lines.name}.out").read_text()]))
    for (_, kind, split, strategy), exchanged in zip(cuts, exchanges, strict=True):
        assert len(exchanged) == (len(QUESTIONS) if (split, strategy) == ("Line", "SingleRecord") else 1)
        check(answers_of(kind, [answer for _, answer in exchanged]))
