"""What config.json says before any weights are loaded."""

import pytest

from berth.contract.model_config import cannot_answer, unusable


@pytest.mark.parametrize("kind", ["xlnet", "gpt2", "fnet", "layoutlmv3"])
def test_architectures_that_no_image_can_use(kind: str) -> None:
    assert f"of type {kind}, which " in unusable({"model_type": kind})
    assert unusable({"model_type": kind}) == cannot_answer({"model_type": kind})


def test_a_model_with_another_head_can_be_trained_and_not_served() -> None:
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}
    assert cannot_answer(config) == (
        "this is a BertForSequenceClassification, and the image answers questions: give it a code/inference.py, or "
        "fine-tune it for question answering first"
    )
    assert unusable(config) == ""


@pytest.mark.parametrize("names", [["BertForQuestionAnswering"], ["FlaubertForQuestionAnsweringSimple"], None, [], "x"])
def test_nothing_to_say(names: object) -> None:
    assert cannot_answer({"model_type": "bert", "architectures": names}) == ""
    assert cannot_answer({"model_type": 3}) == ""
