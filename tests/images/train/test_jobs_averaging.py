"""Two hosts train one model: their gradients are averaged, so they end where one process on both their batches does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from berth.contract.archive import unpack

pytestmark = pytest.mark.transformers5

Excerpt = Callable[[str, int], dict[str, Any]]
Weights = dict[str, np.ndarray[Any, Any]]
PER_HOST = 8
STEPS = 2
# Plain descent without chance: steps large enough to see, whole batches, no dropout.
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
    """Two batches of questions, longest first, no two of one length, one window each.

    A step's questions go to the ranks by length, so that the first half of them is what rank 0 sees, at each step.
    """
    tokenizer.no_truncation()
    tokenizer.no_padding()
    found = {}
    for article in whole["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                tokens = len(tokenizer.encode(question["question"], paragraph["context"]).ids)
                if tokens <= 384:
                    found.setdefault(tokens, {"context": paragraph["context"], "qas": [question]})
    chosen = dict(list(found.items())[: 2 * PER_HOST])
    assert len(chosen) == 2 * PER_HOST
    return [chosen[tokens] for tokens in sorted(chosen, reverse=True)]


def squad(paragraphs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def weights(
    train_job: Callable[..., Any],
    tiny_model: Path,
    excerpt: Excerpt,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Weights]:
    """The weights before, and after jobs on each rank's half alone, on both halves in one process and by two hosts."""
    both = by_length(excerpt("train", 80), Tokenizer.from_file(str(tiny_model / "tokenizer.json")))
    jobs = {
        "first half": (both[:PER_HOST], 1, PER_HOST),
        "second half": (both[PER_HOST:], 1, PER_HOST),
        "one process": (both, 1, 2 * PER_HOST),
        "two hosts": (both, 2, PER_HOST),
    }
    found = {"before": load_file(tiny_model / "model.safetensors")}
    for name, (paragraphs, hosts, batch) in jobs.items():
        folder = tmp_path_factory.mktemp("half")
        (folder / "squad.json").write_text(json.dumps(squad(paragraphs)))
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
        found[name] = load_file(unpacked / "model.safetensors")
    return found


def distance(one: Weights, other: Weights) -> float:
    """The largest difference of any weight."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name] - other[name]).max()) for name in one)


@pytest.mark.nightly
def test_two_hosts_end_where_one_process_on_the_joint_batch_does(weights: dict[str, Weights]) -> None:
    moved = distance(weights["two hosts"], weights["before"])
    apart = distance(weights["two hosts"], weights["one process"])
    print(f"weights moved by {moved:.2e}; two hosts and one process are {apart:.2e} apart")
    assert moved > 1e-3
    assert apart < 1e-5


@pytest.mark.nightly
@pytest.mark.parametrize("alone", ["first half", "second half"])
def test_two_hosts_end_where_neither_half_alone_does(weights: dict[str, Weights], alone: str) -> None:
    assert distance(weights["two hosts"], weights[alone]) > 1e-3
