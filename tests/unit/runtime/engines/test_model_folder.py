"""Finds the model below /opt/ml/model."""

import json
from pathlib import Path

import pytest

from berth.runtime.engines.model_folder import ModelFilesError, find
from tests.files import write_files

CONFIG = '{"model_type": "bert"}'
COMPLETE = {"config.json": CONFIG, "model.safetensors": "x", "tokenizer.json": "{}"}


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
    ids=["plain", "nested", "archive next to model", "checkpoint inside", "older files"],
)
def test_find_model_folder(tmp_path: Path, files: dict[str, str], folder: str, weights: str, tokenizer: str) -> None:
    found = find(write_files(tmp_path, files))
    assert (found.folder, found.weights, found.tokenizer) == (tmp_path / folder, weights, tokenizer)


def test_null_threshold_of_config(tmp_path: Path) -> None:
    config = {"model_type": "bert", "null_score_diff_threshold": -1.5}
    assert find(write_files(tmp_path / "a", COMPLETE)).null_threshold == 0.0
    assert find(write_files(tmp_path / "b", {**COMPLETE, "config.json": json.dumps(config)})).null_threshold == -1.5
    for wrong in ("high", True, float("inf")):
        text = json.dumps(config | {"null_score_diff_threshold": wrong})
        with pytest.raises(ModelFilesError, match=r"has `null_score_diff_threshold`: .*: it must be a number"):
            find(write_files(tmp_path / "c", {**COMPLETE, "config.json": text}))
