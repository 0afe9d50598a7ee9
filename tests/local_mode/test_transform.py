"""SDK v2's Transformer in local mode: a file of records in, a file of answers out, one a line and in order."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.local_mode.test_sdk_v2 import SERVE
from tests.unit.small_models import add_graph, save_tiny_model

PROGRAM = Path(__file__).with_name("transform.py")
QUESTIONS = [
    {"question": f"Who is number {number}?", "context": f"Number {number} is Anna, and number {number + 1} is Ben."}
    for number in range(40)
]


@pytest.mark.parametrize("strategy", ["MultiRecord", "SingleRecord"])
def test_a_batch_transform(run_sdk: Any, tmp_path: Path, strategy: str) -> None:
    model = tmp_path / "model"
    save_tiny_model(model)
    add_graph(model)
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(model, ".")
    (tmp_path / "data").mkdir()
    lines = [json.dumps({"inputs": each}) for each in QUESTIONS]
    lines[7] = '{"inputs": 3}'
    (tmp_path / "data/questions.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "output").mkdir()
    job = {
        "image_uri": SERVE,
        "model_data": str(tmp_path / "model.tar.gz"),
        "data": str(tmp_path / "data"),
        "output": str(tmp_path / "output"),
        "work": str(tmp_path),
        "content_type": "application/jsonlines",
        "strategy": strategy,
    }
    written, _ = run_sdk(PROGRAM, json.dumps(job))
    assert list(written) == ["questions.jsonl.out"]
    answers = [json.loads(line) for line in written["questions.jsonl.out"].splitlines() if line.strip()]
    assert len(answers) == len(QUESTIONS)
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers, strict=True)):
        if number == 7:
            assert answer["error_type"] == "bad_request"
        else:
            assert answer["answer"] == question["context"][answer["start"] : answer["end"]]
