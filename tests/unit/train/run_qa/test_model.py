"""Tests where the model comes from, the errors of unsuitable models, and the length of their windows."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file

from berth.contract.errors import JobError
from berth.qa.squad import Answer, Example
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import make_windows
from berth.runtime.engines.model_check import takes_token_types
from berth.train.run_qa import model
from berth.train.run_qa.inputs import job_data
from berth.train.run_qa.inputs.features import Collator, WindowDataset
from berth.train.run_qa.model import Loaded
from berth.train.run_qa.recipe import Paths, Recipe


def test_find_prefers_path_then_channel_then_hub(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    both = Recipe(model_name_or_path="bert-base-uncased")
    channel = tmp_path / "input/data/model"
    assert model.find(both, paths, frozenset({"model"})) == (
        channel,
        "model: channel model (not model_name_or_path bert-base-uncased)",
    )
    assert model.find(both, paths, frozenset())[0] == "bert-base-uncased"
    assert model.find(Recipe(model_name_or_path=str(tmp_path)), paths, frozenset({"model"}))[0] == tmp_path
    with pytest.raises(JobError, match="There is no model: pass model_name_or_path"):
        model.find(Recipe(), paths, frozenset())


def test_folder_finds_a_nested_model_and_reports_faults(tmp_path: Path) -> None:
    nested = tmp_path / "bert"
    nested.mkdir()
    (nested / "config.json").write_text("{}")
    (nested / "model.safetensors").write_bytes(b"x")
    with pytest.raises(JobError, match="has no tokenizer"), model.folder(tmp_path):
        pass
    with model.folder(tmp_path, tokenizer=False) as folder:  # the job sets tokenizer_name
        assert folder == nested
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/model.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(JobError, match=r"is not a \.tar\.gz archive"), model.folder(tmp_path / "packed"):
        pass


def damaged_config(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"hidden_size": 16', '"hidden_size": "x"'))


DAMAGES = {
    "text-instead-of-weights": (lambda folder: (folder / "model.safetensors").write_text("weights\n"), "weights"),
    "cut-off-weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:2000]),
        "weights",
    ),
    "wrong-type-in-config": (damaged_config, "config"),
    "cut-off-tokenizer": (lambda folder: (folder / "tokenizer.json").write_text("{"), "tokenizer"),
}


@pytest.mark.parametrize(("damage", "part"), DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_model(damage: Any, part: str, tmp_path: Path, tiny_model: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    damage(folder)
    with pytest.raises(JobError) as error:
        model.load(folder, Recipe())
    sentence = str(error.value)
    assert sentence.startswith(f"The {part} of {folder} can't be loaded (")
    assert sentence.endswith("): copy or save the model again, with its tokenizer.")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("tokens", "positions", "length", "warned"),
    [(10**30, 512, 384, False), (10**30, 64, 64, True), (128, 512, 128, True), (10**30, None, 384, False)],
)
def test_window_length_is_limited_by_model_and_tokenizer(
    tokens: int, positions: int | None, length: int, warned: bool
) -> None:
    log: list[str] = []
    bare = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=positions), base_model=None)
    loaded = Loaded(bare, SimpleNamespace(model_max_length=tokens, num_special_tokens_to_add=lambda pair: 3), ())
    assert job_data.window_length(Recipe(max_seq_length=384, doc_stride=8), loaded, log.append) == length
    assert log == (
        [f"warning: max_seq_length is 384, but the model takes at most {length} tokens: using {length}"]
        if warned
        else []
    )


def model_of_class(tiny_model: Path, folder: Path, name: str, **config: Any) -> Path:
    """A copy of the tiny model's folder with a model of another class of transformers."""
    shutil.copytree(tiny_model, folder)
    model_config = getattr(transformers, f"{name}Config")(**SIZES, **config)
    getattr(transformers, f"{name}ForQuestionAnswering")(model_config).save_pretrained(folder)
    return folder


SIZES = {
    "vocab_size": 25,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}


def test_token_types_change_the_training_loss_of_albert(tmp_path: Path, tiny_model: Path) -> None:
    folder = model_of_class(tiny_model, tmp_path / "model", "Albert", embedding_size=16)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]  # like ALBERT's own tokenizer
    tokenizer.save_pretrained(folder)
    loaded = model.load(folder, Recipe())
    pairs = PairTokenizer.of(loaded.tokenizer, token_types=takes_token_types(loaded.model))
    question = Example("1", "what is the capital", "paris is the capital of france", (Answer("paris", 0),))
    batch = Collator(0)([WindowDataset(make_windows(pairs, [question], 64, 8, label=True))[0]])
    with_types = loaded.model(**batch).loss.item()
    assert batch.pop("token_type_ids").sum() > 0
    assert with_types != loaded.model(**batch).loss.item()


def test_unsuitable_models_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    three = model_of_class(tiny_model, tmp_path / "three", "Bert", num_labels=3)
    with pytest.raises(JobError, match="head has 3 outputs"):
        model.load(three, Recipe())
    small = model_of_class(tiny_model, tmp_path / "small", "Bert")
    config = transformers.BertConfig(**SIZES | {"vocab_size": 10})
    transformers.BertForQuestionAnswering(config).save_pretrained(small)
    with pytest.raises(JobError, match=r"ids up to 2\d .* 10 rows"):
        model.load(small, Recipe())
    shutil.copytree(tiny_model, tmp_path / "xlnet")
    transformers.XLNetConfig().save_pretrained(tmp_path / "xlnet")
    with pytest.raises(JobError, match="of type xlnet, which puts"):
        model.load(tmp_path / "xlnet", Recipe())


def test_classifier_gets_a_new_head_only_for_training(tmp_path: Path, tiny_model: Path) -> None:
    folder = tmp_path / "classifier"
    shutil.copytree(tiny_model, folder)
    classifier = transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES, num_labels=3))
    classifier.save_pretrained(folder)
    loaded = model.load(folder, Recipe())
    assert loaded.fresh == ("qa_outputs",)
    assert loaded.model.config.num_labels == loaded.model.qa_outputs.out_features == 2
    with pytest.raises(JobError, match="no weights for qa_outputs, and this job trains nothing"):
        model.check_head(loaded, folder)
    model.check_head(model.load(tiny_model, Recipe()), tiny_model)


def test_weights_that_do_not_fit_the_config_are_refused(tmp_path: Path, tiny_model: Path) -> None:
    folder = model_of_class(tiny_model, tmp_path / "model", "Bert")
    save_file({"other.weight": torch.zeros(2)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(JobError, match="None of the weights"):
        model.load(folder, Recipe())
