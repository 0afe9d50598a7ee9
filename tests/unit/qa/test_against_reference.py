"""Compares exact match and F1 of faulty predictions with an independent package, on all of SQuAD's dev sets.

The reference is `tf-models-official`, which contains both official scripts. BERTH_REFERENCE_PYTHON is the Python of an
environment with this package; without the variable a temporary environment is made from the package index. BERTH_SQUAD
is a folder with dev-v1.1.json.xz and dev-v2.0.json.xz; without it the tests use the sample, for v2.0 with every third
question made unanswerable.
"""

import json
import lzma
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from berth.qa.metrics import evaluate
from berth.qa.squad import Example, read

REQUIREMENTS = ["--require-hashes", "-r", str(Path(__file__).with_name("requirements.txt"))]


@pytest.fixture(scope="session")
def reference_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    existing_python = os.environ.get("BERTH_REFERENCE_PYTHON")
    if existing_python:
        return existing_python
    folder = tmp_path_factory.mktemp("reference") / "venv"
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv")
    if uv:
        commands = [
            [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", python, "--no-deps", *REQUIREMENTS],
        ]
    else:
        commands = [
            [sys.executable, "-m", "venv", str(folder)],
            [python, "-m", "pip", "install", "--quiet", "--no-deps", *REQUIREMENTS],
        ]
    for command in commands:
        subprocess.run(command, check=True, timeout=180)
    return python


def dev_set(version: str, sample: Path, folder: Path) -> Path:
    """Write the unpacked data of this version into `folder`."""
    name = f"dev-v{version}.json"
    squad_folder = os.environ.get("BERTH_SQUAD")
    source = Path(squad_folder) / f"{name}.xz" if squad_folder else sample / "squad-heldout.json.xz"
    data = json.loads(lzma.decompress(source.read_bytes()))
    if not squad_folder and version == "2.0":
        questions = [q for a in data["data"] for p in a["paragraphs"] for q in p["qas"]]
        for question in questions[::3]:
            question["answers"] = []
            question["is_impossible"] = True
    path = folder / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def spoil(rng: random.Random, text: str, context: str) -> str:
    """A prediction that a model could make for the gold answer `text`; empty: no answer."""
    words = text.split()
    return rng.choice(
        [
            text,
            text.upper(),
            f"the {text}",
            f" {text}, ",
            f"“{text}”",
            f"an {text} a the",
            f"{text} {text}",
            text.replace(" ", "\u00a0"),
            text.replace("e", "e\u0301").replace("I", "İ"),
            text.replace("-", " ").replace(".", ""),
            " ".join(words[1:]),
            " ".join(words[:-1]),
            " ".join(reversed(words)),
            " ".join([*words, *context.split()[:3]]),
            context[: rng.randint(0, 40)],
            context,
            "",
            "the",
            "...",
            "\r\n\t",
            "👩‍💻",
        ]
    )


def spoiled_predictions(examples: list[Example]) -> dict[str, str]:
    """Predictions with faults, the same in every run."""
    rng = random.Random(20261121)
    return {e.id: spoil(rng, rng.choice(e.answers).text if e.answers else "", e.context) for e in examples}


def reference(python: str, version: str, data: Path, predictions: dict[str, str]) -> dict[str, float]:
    path = data.parent / "predictions.json"
    path.write_text(json.dumps(predictions), encoding="utf-8")
    script = Path(__file__).with_name("squad_reference.py")
    command = [python, str(script), version, str(data), str(path)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    scores: dict[str, float] = json.loads(ran.stdout)
    return scores


@pytest.mark.slow
def test_version_1_1_equals_the_reference(reference_python: str, sample: Path, tmp_path: Path) -> None:
    data = dev_set("1.1", sample, tmp_path)
    examples = read(data)
    predictions = dict(list(spoiled_predictions(examples).items())[: -len(examples) // 50])  # without the last ones
    ours = evaluate(predictions, examples)
    theirs = reference(reference_python, "1.1", data, predictions=predictions)
    assert len(predictions) < len(examples)
    assert 10 < ours["exact_match"] < ours["f1"] < 90
    assert ours == {
        "exact_match": pytest.approx(100 * theirs["exact_match"], abs=1e-9),
        "f1": pytest.approx(100 * theirs["final_f1"], abs=1e-9),
        "total": len(examples),
    }


NAMES = {"exact_match": "exact", "f1": "f1", "total": "total"} | {
    f"{kind}_{key}": f"{kind}_{key}" for kind in ("HasAns", "NoAns") for key in ("exact", "f1", "total")
}


@pytest.mark.slow
def test_version_2_0_equals_the_reference(reference_python: str, sample: Path, tmp_path: Path) -> None:
    data = dev_set("2.0", sample, tmp_path)
    examples = read(data, version_2_with_negative=True)
    predictions = spoiled_predictions(examples)
    ours = evaluate(predictions, examples)
    theirs = reference(reference_python, "2.0", data, predictions=predictions)
    assert ours == {key: pytest.approx(theirs[name], abs=1e-9) for key, name in NAMES.items()}
    assert 5 < ours["HasAns_exact"] < ours["HasAns_f1"] < 90
    assert 5 < ours["NoAns_exact"] < 90
