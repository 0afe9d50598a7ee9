"""examples/: scripts that need no launcher learn what they should, and what they save can be served."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from berth.images import pins
from berth.local.demo import pretrained_model

pytestmark = pytest.mark.slow
EXAMPLES = pins.ROOT / "examples"


def run(script: Path, folder: Path, *arguments: str, **variables: str) -> str:
    """Run it as a job of one process on a CPU; its standard output."""
    (folder / "model").mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "SM_MODEL_DIR": str(folder / "model"),
        "ACCELERATE_USE_CPU": "true",
        "HF_HOME": str(folder / "hub"),
        **variables,
    }
    done = subprocess.run(
        [sys.executable, str(script), *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_text_classification_and_its_handler(tmp_path: Path) -> None:
    """On rows of a CSV, as on its own reviews; the handler's labels are the CSV's."""
    rows = ["text,label", *[f"a {word} day,{label}" for label, word in (("sun", "warm"), ("rain", "wet"))] * 60]
    (tmp_path / "train").mkdir()
    (tmp_path / "train/train.csv").write_text("\n".join(rows) + "\n")
    script = EXAMPLES / "text_classification" / "train.py"
    said = run(script, tmp_path, SM_CHANNEL_MODEL=str(pretrained_model()), SM_CHANNEL_TRAIN=str(tmp_path / "train"))
    assert re.search(r"^right labels: 100 of 100$", said, re.MULTILINE), said
    handler = runpy.run_path(str(tmp_path / "model/code/inference.py"))
    answers = handler["model_fn"](str(tmp_path / "model"))(["a warm day", "a wet day"])
    assert [answer["label"] for answer in answers] == ["sun", "rain"]
