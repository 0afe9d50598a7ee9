"""The five commands of docs/profiles.md, from wanted versions to a pushed image, in a copy of the checkout."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.common import engine
from berth.common.image_names import image_name
from berth.images.pins import pins, pins_file
from tests.images.conftest import copy_kit
from tests.registry.registries import Registry

NAME = "session-of-a-test"
PROGRAM = """
import os

import datasets, peft, torch, transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

print("carries", transformers.__version__, peft.__version__)
model = BertForSequenceClassification(BertConfig(32, 16, 1, 2, 16))
model = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"]))
rows = datasets.Dataset.from_dict({"input_ids": [[1, 2, 3]] * 4, "labels": [0, 1] * 2})
arguments = TrainingArguments("/tmp/run", evaluation_strategy="steps", max_steps=2, report_to=[], use_cpu=True)
Trainer(model, arguments, train_dataset=rows, eval_dataset=rows).train()
model.save_pretrained(os.environ["SM_MODEL_DIR"])
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A copy of the checkout, whose pins.toml may change; its images are removed at the end."""
    copy = copy_kit(tmp_path / "berth")
    (copy / "src").mkdir()
    (copy / "src" / "train.py").write_text(PROGRAM)
    yield copy
    for image in engine.connect().images.list():
        for tag in image.tags:
            if NAME in tag:
                engine.connect().images.remove(tag, force=True)


def commands(registry: Registry) -> list[list[str]]:
    """The five commands of docs/profiles.md, with a registry on this machine."""
    page = (pins.ROOT / "docs/profiles.md").read_text()
    section = page.partition('## From "I need transformers 4.46 and peft"')[2]
    block = section.partition("```sh\n")[2].partition("```")[0]
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(lines) == 5
    words = [[NAME if word == "mine" else word for word in line[2:]] for line in lines]
    region = words[-1].index("--region")
    words[-1][region:] = ["--registry", registry.host, "--no-test", "--dist", "dist"]
    return words


@pytest.mark.nightly
def test_five_commands_of_the_page_push_an_image(checkout: Path, registry: Registry) -> None:
    """The push skips the image's tests, which take minutes."""
    outputs = []
    for words in commands(registry):
        result = subprocess.run(
            [sys.executable, "build.py", *words],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert result.returncode == 0, (words, result.stdout, result.stderr)
        outputs.append(result.stdout + result.stderr)
    added, shown, _, trained, pushed = outputs
    assert f"added {NAME} in " in added
    assert re.search(r"^requirements +peft==0\.15\.0 *$", shown, re.MULTILINE)
    assert "carries 4.46.3 0.15.0" in trained
    assert (checkout / "out" / "model.tar.gz").exists()
    uri = re.search(rf"{re.escape(registry.host)}/berth-train@(sha256:[0-9a-f]{{64}})", pushed)
    assert uri, pushed
    assert pins_file.load(checkout / "docker" / "pins.toml").profile(NAME).software.requirements == ("peft==0.15.0",)
    assert engine.connect().images.get(image_name("train", NAME)).labels["berth.profile"] == NAME
