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
def test_found(tmp_path: Path, files: dict[str, str], folder: str, weights: str, tokenizer: str) -> None:
    found = find(write(tmp_path, files))
    assert (found.folder, found.weights, found.tokenizer) == (tmp_path / folder, weights, tokenizer)


def test_the_threshold_of_the_config(tmp_path: Path) -> None:
    said = {"model_type": "bert", "null_score_diff_threshold": -1.5}
    assert find(write(tmp_path / "a", COMPLETE)).null_threshold == 0.0
    assert find(write(tmp_path / "b", {**COMPLETE, "config.json": json.dumps(said)})).null_threshold == -1.5
    for wrong in ("high", True, float("inf")):
        text = json.dumps(said | {"null_score_diff_threshold": wrong})
        with pytest.raises(ModelFilesError, match=r"has `null_score_diff_threshold`: .*: it must be a number"):
            find(write(tmp_path / "c", {**COMPLETE, "config.json": text}))


def without(name: str) -> dict[str, str]:
    return {key: text for key, text in COMPLETE.items() if key != name}


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"x": ""}, "{} has no config.json, nor has a folder in it: put the files of one model there"),
        ({"model.tar.gz": "x"}, "{} holds model.tar.gz but no config.json: unpack the archive there"),
        (
            {"a/config.json": CONFIG, "b/config.json": CONFIG},
            "{} holds several models (a, b): put one of them there",
        ),
        (
            without("model.safetensors"),
            "{} has no weights (`model.safetensors` or `pytorch_model.bin`): save the model next to its config.json",
        ),
        (
            {**COMPLETE, "model.safetensors": ""},
            "{} has no weights (`model.safetensors` or `pytorch_model.bin`): save the model next to its config.json",
        ),
        (without("tokenizer.json"), "{} has no tokenizer (`tokenizer.json` or `vocab.txt`): save it next to the model"),
        (
            {**COMPLETE, "config.json": "[]"},
            "{}/config.json names no `model_type`: save the model with `save_pretrained`",
        ),
        (
            {"config.json": "{}"},
            "{0}/config.json names no `model_type`: save the model with `save_pretrained`; {0} has no weights "
            "(`model.safetensors` or `pytorch_model.bin`): save the model next to its config.json; {0} has no "
            "tokenizer (`tokenizer.json` or `vocab.txt`): save it next to the model",
        ),
    ],
    ids=[
        "nothing",
        "archive only",
        "two models",
        "no weights",
        "empty weights",
        "no tokenizer",
        "other json",
        "all of it",
    ],
)
def test_refusals(tmp_path: Path, files: dict[str, str], sentence: str) -> None:
    with pytest.raises(ModelFilesError) as caught:
        find(write(tmp_path, files))
    assert str(caught.value) == sentence.format(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match="does not exist: mount or unpack the model there"):
        find(tmp_path / "model")


def test_a_configuration_that_is_no_json(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=r"config\.json can't be read \(Expecting value.*: save the model again"):
        find(write(tmp_path, {**COMPLETE, "config.json": "oops"}))
