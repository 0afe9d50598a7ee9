"""Tests the parts of a checkpoint: its global batch, its random states, and its digests."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForQuestionAnswering

from berth.contract.errors import JobError
from berth.qa.windows import Window
from berth.train.run_qa.checkpoints import global_batch, identity, random_states
from berth.train.run_qa.checkpoints.manifest import CheckpointManifest
from berth.train.run_qa.inputs.features import OrderSampler, WindowDataset

WRITTEN = CheckpointManifest(
    step=20,
    sequence=1,
    ranks=2,
    per_device_batch=4,
    accumulation=3,
    resumable=True,
    identity={},
)


def test_global_batch_is_kept_on_another_number_of_ranks() -> None:
    """The checkpoint is from 2 ranks, with 24 windows per step and 4 per batch."""
    training: dict[str, Any] = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}
    assert global_batch.keep(training, WRITTEN, 2) == []
    for ranks, batch, times in ((1, 4, 6), (6, 4, 1), (8, 3, 1), (24, 1, 1)):
        training = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}
        batches, other_bits = global_batch.keep(training, WRITTEN, ranks)
        assert training == {"per_device_train_batch_size": batch, "gradient_accumulation_steps": times}
        assert f"per_device_train_batch_size {batch}, gradient_accumulation_steps {times}" in batches
        assert "not bit for bit" in other_bits
    small = {"per_device_train_batch_size": 2}
    assert len(global_batch.keep(small, WRITTEN, 2)) == 1, "the job changed its batch size"
    assert small == {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 6}
    with pytest.raises(JobError, match="24 windows each, which can't be divided among 5 ranks"):
        global_batch.keep({}, WRITTEN, 5)


@pytest.mark.parametrize(("windows", "count", "taken"), [(5, 8, 8), (5, 5, 5), (5, 4, 4), (2, 6, 6)])
def test_order_sampler_fills_an_epoch_with_its_first_windows(windows: int, count: int, taken: int) -> None:
    sampler = OrderSampler(lambda epoch: [(number + epoch) % windows for number in range(windows)], count)
    sampler.set_epoch(1)
    assert len(sampler) == taken
    assert list(sampler) == [(number % windows + 1) % windows for number in range(taken)]


def draw() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(1).item()]


def test_random_states_survive_json() -> None:
    draw()
    states = json.loads(json.dumps(random_states.current()))
    drawn = draw()
    assert draw() != drawn
    random_states.restore(states)
    assert draw() == drawn


@pytest.fixture
def config(tiny_model: Path) -> BertConfig:
    return BertConfig.from_pretrained(tiny_model)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.0}, True),
        ({"null_score_diff_threshold": 2.0, "transformers_version": "9"}, True),
        ({"num_attention_heads": 4}, False),
        ({"hidden_act": "relu"}, False),
        ({"vocab_size": 30}, False),
    ],
)
def test_config_digest_depends_only_on_the_architecture(change: dict[str, Any], same: bool, config: BertConfig) -> None:
    before = identity.digest_config(config)
    for name, value in change.items():
        setattr(config, name, value)
    assert (identity.digest_config(config) == before) is same


def test_weights_digest_ignores_fresh_parts(config: BertConfig) -> None:
    model = BertForQuestionAnswering(config)
    before = identity.digest_weights(model, ("qa_outputs",))
    torch.nn.init.ones_(model.qa_outputs.weight)
    assert identity.digest_weights(model, ("qa_outputs",)) == before
    model.load_state_dict(BertForQuestionAnswering(config).state_dict())
    assert identity.digest_weights(model, ("qa_outputs",)) != before


def dataset(*rows: tuple[list[int], int]) -> WindowDataset:
    empty = np.zeros((0, 2), np.int32)
    return WindowDataset(
        [Window(0, np.array(ids, np.int32), None, empty, empty, 0, 0, start=at, end=at) for ids, at in rows]
    )


def test_windows_digest_depends_on_content_and_order() -> None:
    rows = ([1, 2, 3], 1), ([1, 4], 0)
    before = identity.digest_windows(dataset(*rows), ["random", 42])
    assert identity.digest_windows(dataset(*rows), ["random", 42]) == before
    others = [
        identity.digest_windows(dataset(*rows), ["random", 43]),
        identity.digest_windows(dataset(*reversed(rows)), ["random", 42]),
        identity.digest_windows(dataset(rows[0]), ["random", 42]),
        identity.digest_windows(dataset(rows[0], ([1, 4], 1)), ["random", 42]),
        identity.digest_windows(dataset(([1, 2], 1), ([3, 1, 4], 0)), ["random", 42]),
    ]
    assert len({before, *others}) == 6
    assert identity.difference({"model": "a", "weights": "b", "data": "c"}, {"model": "a", "data": "d"}) == "weights"
    assert identity.difference(WRITTEN.identity, replace(WRITTEN).identity) == ""
