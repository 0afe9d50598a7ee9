"""Finding the model under /opt/ml/model."""

import json
from pathlib import Path

import pytest

from berth.runtime.engines.model_folder import ModelFilesError, find

CONFIG = '{"model_type": "bert"}'
COMPLETE = {"config.json": CONFIG, "model.safetensors": "x", "tokenizer.json": "{}"}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("files", "folder", "weights", "tokenizer"),
    [
        (COMPLETE, ".", "model.safetensors", "tokenizer.json"),
        (
            {f"my-model/{name}": text for name, text in COMPLETE.items()},
            "my-model",
            "model.safetensors",
            "tokenizer.json",
        ),
        ({**COMPLETE, "model.tar.gz": "x"}, ".", "model.safetensors", "tokenizer.json"),
        ({**COMPLETE, "checkpoint-5/config.json": CONFIG}, ".", "model.safetensors", "tokenizer.json"),
        ({"config.json": CONFIG, "pytorch_model.bin": "x", "vocab.txt": "a"}, ".", "pytorch_model.bin", "vocab.txt"),
    ],
    ids=["plain", "nested", "archive beside it", "checkpoint inside", "older files"],
)
def test_find_model_folder(tmp_path: Path, files: dict[str, str], folder: str, weights: str, tokenizer: str) -> None:
    found = find(write(tmp_path, files))
    assert (found.folder, found.weights, found.tokenizer) == (tmp_path / folder, weights, tokenizer)


def test_null_threshold_of_config(tmp_path: Path) -> None:
    said = {"model_type": "bert", "null_score_diff_threshold": -1.5}
    assert find(write(tmp_path / "a", COMPLETE)).null_threshold == 0.0
    assert find(write(tmp_path / "b", {**COMPLETE, "config.json": json.dumps(said)})).null_threshold == -1.5
    for wrong in ("high", True, float("inf")):
        text = json.dumps(said | {"null_score_diff_threshold": wrong})
        with pytest.raises(ModelFilesError, match=r"has `null_score_diff_threshold`: .*: it must be a number"):
            find(write(tmp_path / "c", {**COMPLETE, "config.json": text}))


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        ({"model.tar.gz": "x"}, ["model.tar.gz", "unpack it there"]),
        ({"a/config.json": CONFIG, "b/config.json": CONFIG}, ["several models (a, b)"]),
        (
            {**COMPLETE, "model.safetensors": ""},
            ["{} has no weights (`model.safetensors` or `pytorch_model.bin`): save"],
        ),
        ({**COMPLETE, "config.json": "[]"}, ["{}/config.json names no `model_type`"]),
        ({**COMPLETE, "config.json": "oops"}, ["{}/config.json can't be read (Expecting value"]),
        ({"config.json": "{{}}"}, ["{0}/config.json", "; {0} has no weights", "; {0} has no tokenizer"]),
    ],
    ids=["archive only", "two models", "empty weights", "other json", "no json", "all of it"],
)
def test_find_reports_faults(tmp_path: Path, files: dict[str, str], facts: list[str]) -> None:
    with pytest.raises(ModelFilesError) as caught:
        find(write(tmp_path, files))
    assert not [fact for fact in facts if fact.format(tmp_path) not in str(caught.value)], caught.value


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="does not exist"):
        find(tmp_path / "model")
