"""Where the model comes from, what a damaged one ends in, and the windows that it takes."""

import random
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from berth.train.finetune import model
from berth.train.finetune.inputs import job_data
from berth.train.finetune.model import Loaded, ModelLoadError
from berth.train.finetune.recipe import Paths, Recipe


def test_where_the_model_comes_from(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    both = Recipe(model_name_or_path="bert-base-uncased")
    channel = tmp_path / "input/data/model"
    assert model.find(both, paths, frozenset({"model"})) == (
        channel,
        "model: channel model (not model_name_or_path bert-base-uncased)",
    )
    assert model.find(both, paths, frozenset())[0] == "bert-base-uncased"
    assert model.find(Recipe(model_name_or_path=str(tmp_path)), paths, frozenset({"model"}))[0] == tmp_path
    with pytest.raises(ModelLoadError, match="There is no model: pass model_name_or_path"):
        model.find(Recipe(), paths, frozenset())


def test_model_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"holds no config\.json"), model.folder(tmp_path):
        pass
    nested = tmp_path / "bert"
    nested.mkdir()
    (nested / "config.json").write_text("{}")
    with pytest.raises(ModelLoadError, match="holds no weights"), model.folder(tmp_path):
        pass
    (nested / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelLoadError, match="holds no weights"), model.folder(tmp_path):
        pass
    (nested / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ModelLoadError, match="holds no tokenizer: save it next to the model"), model.folder(tmp_path):
        pass
    with model.folder(tmp_path, tokenizer=False) as found:  # tokenizer_name names another
        assert found == nested
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/model.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(ModelLoadError, match=r"is no \.tar\.gz archive"), model.folder(tmp_path / "packed"):
        pass


def damaged_config(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"hidden_size": 16', '"hidden_size": "x"'))


DAMAGES = {
    "a Git LFS pointer": (
        lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n"),
        "weights",
    ),
    "cut-off weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:2000]),
        "weights",
    ),
    "a config of another type": (damaged_config, "config"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer"),
}


@pytest.mark.parametrize(("damage", "part"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_model(damage: Any, part: str, tmp_path: Path, tiny_model: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    damage(folder)
    with pytest.raises(ModelLoadError) as error:
        model.load(folder, Recipe())
    sentence = str(error.value)
    assert sentence.startswith(f"The {part} of {folder} can't be loaded (")
    assert sentence.endswith("): copy or save the model again, with its tokenizer.")
    assert "\n" not in sentence


def test_archive_damaged_inside_the_weights(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(random.Random(0).randbytes(300_000))
    archive = tmp_path / "model.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(weights, arcname="model.safetensors")
    data = archive.read_bytes()
    half = len(data) // 2
    archive.write_bytes(data[:half] + b"\xff" * half)
    with pytest.raises(ModelLoadError, match=r"can't be unpacked \(Error -3 .*\): pass"), model.folder(archive):
        pass


@pytest.mark.parametrize(
    ("tokens", "positions", "length", "warned"),
    [(10**30, 512, 384, False), (10**30, 64, 64, True), (128, 512, 128, True), (10**30, None, 384, False)],
)
def test_windows_fit_the_models_positions(tokens: int, positions: int | None, length: int, warned: bool) -> None:
    said: list[str] = []
    bare = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=positions), base_model=None)
    loaded = Loaded(bare, SimpleNamespace(model_max_length=tokens, num_special_tokens_to_add=lambda pair: 3), ())
    assert job_data.window_length(Recipe(max_seq_length=384, doc_stride=8), loaded, said.append) == length
    assert said == ([f"warning: the model takes {length} tokens, not max_seq_length 384"] if warned else [])
