"""examples/: scripts without a launcher learn their task, and their models can be served."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed.run

from berth.images.pins import pins
from berth.local.demo import pretrained_model

pytestmark = pytest.mark.slow
EXAMPLES = pins.ROOT / "examples"


def run(script: Path, folder: Path, *arguments: str, **variables: str) -> str:
    """Runs a script as a job of one process on a CPU; returns its stdout."""
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


@pytest.mark.nightly
def test_data_parallel_example_on_one_and_two_ranks(tmp_path: Path) -> None:
    """The batch over all ranks is the same, so both runs must learn equally well."""
    script = EXAMPLES / "distributed_data_parallel" / "train.py"
    alone = run(script, tmp_path / "alone")
    launcher = Path(torch.distributed.run.__file__)
    two = run(launcher, tmp_path / "two", "--standalone", "--nproc-per-node=2", str(script), OMP_NUM_THREADS="1")
    for output in (alone, two):
        assert int(re.findall(r"^right side: (\d+) of 1000$", output, re.MULTILINE)[0]) > 950
        assert output.count("epoch") == 8
    assert (tmp_path / "two/model/model.pt").is_file()


def test_spot_example_equals_the_program_of_the_page() -> None:
    """tests/unit/test_docs.py runs, stops and resumes the program."""
    page = (pins.ROOT / "docs/spot.md").read_text()
    assert f"```python\n{(EXAMPLES / 'spot/train.py').read_text()}```" in page


@pytest.mark.parametrize("launcher", sorted(EXAMPLES.glob("*/launch_v*.py")), ids=lambda path: path.parent.name)
def test_readmes_of_examples_name_each_launcher(launcher: Path) -> None:
    assert f"…/{launcher.name}" in (launcher.parent / "README.md").read_text()


@pytest.mark.nightly
def test_text_classification_example_and_its_handler(tmp_path: Path) -> None:
    """The example trains on a CSV of the user; the handler answers with the CSV's labels."""
    rows = ["text,label", *[f"a {word} day,{label}" for label, word in (("sun", "warm"), ("rain", "wet"))] * 60]
    (tmp_path / "train").mkdir()
    (tmp_path / "train/train.csv").write_text("\n".join(rows) + "\n")
    script = EXAMPLES / "text_classification" / "train.py"
    output = run(script, tmp_path, SM_CHANNEL_MODEL=str(pretrained_model()), SM_CHANNEL_TRAIN=str(tmp_path / "train"))
    assert re.search(r"^right labels: 100 of 100$", output, re.MULTILINE), output
    handler = runpy.run_path(str(tmp_path / "model/code/inference.py"))
    answers = handler["model_fn"](str(tmp_path / "model"))(["a warm day", "a wet day"])
    assert [answer["label"] for answer in answers] == ["sun", "rain"]
