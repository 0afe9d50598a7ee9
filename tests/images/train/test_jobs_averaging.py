"""Two hosts average their gradients: their model ends with the weights of one process that trains on both batches."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from berth.contract.archive import unpack
from tests.conftest import Excerpt

pytestmark = pytest.mark.transformers5

Weights = dict[str, np.ndarray[Any, Any]]
PER_HOST = 8
STEPS = 2
# Deterministic SGD: large steps, whole batches, no dropout.
HYPERPARAMETERS = {
    "do_train": "True",
    "max_steps": str(STEPS),
    "optim": "sgd",
    "learning_rate": "0.1",
    "lr_scheduler_type": "constant",
    "max_grad_norm": "0",
    "hidden_dropout_prob": "0",
    "attention_probs_dropout_prob": "0",
    "logging_steps": "1",
}


def by_length(whole: dict[str, Any], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Questions for two batches, longest first, with different lengths and one window each.

    A step distributes its questions to the ranks by length, so rank 0 gets the first half in every step.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    by_tokens = {}
    for article in whole["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                tokens = len(tokenizer.encode(question["question"], paragraph["context"]).ids)
                if tokens <= 384:
                    by_tokens.setdefault(tokens, {"context": paragraph["context"], "qas": [question]})
    selected = dict(list(by_tokens.items())[: 2 * PER_HOST])
    assert len(selected) == 2 * PER_HOST
    return [selected[tokens] for tokens in sorted(selected, reverse=True)]


def squad(paragraphs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}


def distance(one: Weights, other: Weights) -> float:
    """The largest difference of any weight."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


@pytest.mark.nightly
def test_two_hosts_get_the_weights_of_one_process_with_both_halves(
    train_job: Callable[..., Any], tiny_model: Path, excerpt: Excerpt, tmp_path_factory: pytest.TempPathFactory
) -> None:
    both = by_length(excerpt("train", 80), Tokenizer.from_file(str(tiny_model / "tokenizer.json")))
    jobs = {"one process": (1, 2 * PER_HOST), "two hosts": (2, PER_HOST)}
    results = {"before": load_file(tiny_model / "model.safetensors")}
    for name, (hosts, batch) in jobs.items():
        folder = tmp_path_factory.mktemp("both")
        (folder / "squad.json").write_text(json.dumps(squad(both)))
        ran = train_job(
            {"train": folder},
            model=tiny_model,
            hosts=hosts,
            hyperparameters=HYPERPARAMETERS | {"per_device_train_batch_size": str(batch)},
        )
        assert ran.outcome.exit_code == 0, ran.log
        assert f"train data: {batch * hosts} windows" in ran.log
        if hosts == 2:
            assert "weights: the same on all 2 ranks" in ran.log
        unpacked = folder / "model"
        unpack(ran.outcome.model_archive, unpacked)
        results[name] = load_file(unpacked / "model.safetensors")
    moved = distance(results["two hosts"], results["before"])
    difference = distance(results["two hosts"], results["one process"])
    print(f"weights moved by {moved:.2e}; two hosts and one process differ by {difference:.2e}")
    assert moved > 1e-3
    assert difference < 1e-5
