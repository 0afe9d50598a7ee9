"""Runs the handlers in serve/README.md."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertLMHeadModel,
    BertModel,
    BertPreTrainedModel,
)

from berth.contract.served_model import serving_faults
from berth.images.pins import pins
from tests.unit.serve.in_process import ONE
from tests.unit.small_models import tiny_tokenizer

PAGE = (pins.ROOT / "serve/README.md").read_text("utf-8")
SECTION = PAGE.partition("## A model's own code")[2].partition("\n## ")[0]
ALONE, WITH_MODEL, OTHER_HEAD = re.findall(r"^```python\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_readme_example_with_predict_fn_only(tiny_model: Path, model: Any, serve: Any) -> None:
    shutil.copytree(tiny_model, model(), dirs_exist_ok=True)
    client = serve(ALONE)
    answers = client.post("/invocations", json=ONE).json()
    assert len(answers) > 1
    least = answers[0]["score"]
    assert client.post("/invocations", json={**ONE, "least": least}).json() == [
        answer for answer in answers if answer["score"] >= least
    ]


def test_model_fn_and_predict_fn(model: Any, serve: Any) -> None:
    (model() / "words.txt").write_text("ship berth\n")
    client = serve(WITH_MODEL)
    assert client.post("/invocations", json={"inputs": ["berth", "train"]}).json() == [True, False]
    assert client.get("/ping").json() == {"status": "ready", "handler": "the model's own"}


OTHER_HEADS: dict[str, tuple[type[BertPreTrainedModel], Any, Callable[[Any], bool]]] = {
    "text-classification": (BertForSequenceClassification, "a b", lambda one: one[0]["label"].startswith("LABEL_")),
    "token-classification": (
        BertForTokenClassification,
        "ab",
        lambda one: all(0 <= each["score"] <= 1 for each in one),
    ),
    "fill-mask": (BertForMaskedLM, "a [UNK]", lambda one: len(one) == 5),
    "text-generation": (BertLMHeadModel, "ab", lambda one: one[0]["generated_text"].startswith("a")),
    "feature-extraction": (BertModel, "ab", lambda one: len(one[0][0]) == 32),
}


TRUNCATING = ("text-classification", "feature-extraction")


@pytest.mark.parametrize("task", OTHER_HEADS)
def test_readme_example_loads_each_other_head(task: str, model: Any) -> None:
    """Each model is refused without a handler, and loads with the README's three lines and the task in its table."""
    kind, text, is_right = OTHER_HEADS[task]
    save_with_head(kind, model())
    (fault,) = serving_faults(model(), "mine")
    assert fault.startswith(f"mine: this is a {kind.__name__}, and the image answers questions: ")
    assert f"`{task}` |" in SECTION
    handler: dict[str, Any] = {}
    code = OTHER_HEAD.replace("text-classification", task)
    exec(code if task in TRUNCATING else code.replace(", truncation=True", ""), handler)
    assert is_right(handler["model_fn"](str(model()))(text))


@pytest.mark.slow
def test_readme_example_of_another_head_answers_requests(model: Any, serve: Any) -> None:
    save_with_head(BertForSequenceClassification, model())
    assert len([line for line in OTHER_HEAD.splitlines() if line]) == 3
    client = serve(OTHER_HEAD)
    body = {"inputs": ["a b", "c"], "parameters": {"top_k": 2}}
    first, second = client.post("/invocations", json=body).json()
    assert {each["label"] for each in first} == {each["label"] for each in second} == {"LABEL_0", "LABEL_1"}


def save_with_head(kind: type[BertPreTrainedModel], folder: Path) -> None:
    """A tiny BERT of that class, and its tokenizer."""
    tokenizer = tiny_tokenizer()
    tokenizer.mask_token = "[UNK]"
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    kind(BertConfig(vocab_size=len(tokenizer), is_decoder=kind is BertLMHeadModel, **sizes)).save_pretrained(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "inference.py"])
def test_readme_archive_lists_the_models_files(tiny_model: Path, name: str) -> None:
    assert f"── {name}\n" in PAGE
    assert name == "inference.py" or (tiny_model / name).is_file()
