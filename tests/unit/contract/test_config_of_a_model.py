"""Errors in config.json that are reported before any weights are loaded."""

import pytest

from berth.contract.served_model import has_other_head, other_head, unusable

HANDLER = 'give it a code/inference.py with a model_fn: three lines, "A model with another head" in serve/README.md'


@pytest.mark.parametrize("kind", ["xlnet", "gpt2", "fnet", "layoutlmv3"])
def test_unusable_architectures(kind: str) -> None:
    assert f"of type {kind}, which " in unusable({"model_type": kind})


def test_other_head_suggests_handler() -> None:
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    assert other_head(config) == f"this is a BertForSequenceClassification, and the image answers questions: {HANDLER}"
    assert unusable(config) == ""


@pytest.mark.parametrize(
    ("names", "embedder", "model_class", "fine_tuning"),
    [
        (["BertModel"], False, "a BertModel,", True),
        (["BertForMaskedLM"], False, "a BertForMaskedLM,", True),
        (["BertModel"], True, "a BertModel of sentence-transformers, which makes embeddings,", False),
        (["LlamaForCausalLM"], False, "a LlamaForCausalLM,", False),
        (["BertForMaskedLM", "BertForNextSentencePrediction"], False, "a BertForMaskedLM and BertForNext", True),
    ],
)
def test_fine_tuning_is_suggested_for_pretrained_models(
    names: list[str], embedder: bool, model_class: str, fine_tuning: bool
) -> None:
    sentence = other_head({"architectures": names}, embedder=embedder)
    assert f"this is {model_class}" in sentence
    assert ("run_qa" in sentence) == fine_tuning


@pytest.mark.parametrize(
    "names",
    [
        ["BertForQuestionAnswering"],
        ["FlaubertForQuestionAnsweringSimple"],
        ["BertForMaskedLM", "BertForQuestionAnswering"],
        None,
        [],
        "x",
    ],
)
def test_question_answering_or_unknown_head_has_no_error(names: object) -> None:
    assert not has_other_head({"architectures": names})
    assert other_head({"model_type": "bert", "architectures": names}) == ""
    assert unusable({"model_type": 3}) == ""
