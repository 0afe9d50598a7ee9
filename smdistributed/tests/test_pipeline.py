"""Pipelines of real ranks against one process: a launch with 2 ranks and, nightly, two more with 2 and with 4."""

from pathlib import Path
from typing import Any

import pytest
import rank_jobs

pytestmark = pytest.mark.slow
BODY = """
import logging
logging.disable(logging.WARNING)
smp.init({"partitions": int(os.environ["WORLD_SIZE"]), "microbatches": 2})
import pipeline_cases, pipeline_faults, pipeline_features, pipeline_repeats
results = {}
"""
BOTH = """
results["faults"] = {name: pipeline_faults.fault(name) for name in pipeline_faults.FAULTS}
results["features"] = {each.__name__: each() for each in pipeline_features.ALL}
results["two forwards"] = pipeline_faults.two_forwards()
"""
TWO = """
cases = [
    ("mlp", dict(microbatches=4, active_microbatches=1)), ("roberta", dict(microbatches=4, pipeline="simple")),
    ("bert", dict(microbatches=4)), ("dicts", dict(microbatches=3)),
    ("roberta", dict(microbatches=4, deterministic_server=True)),
]
results["cases"] = [pipeline_cases.equality(kind, {"partitions": 2, **more}) for kind, more in cases]
results["with dropout"] = [pipeline_repeats.independent("noisy", (1, 2))]
result(results)
"""
MORE_ON_TWO = """
cases = [
    ("mlp", dict(microbatches=1)), ("mlp", dict(microbatches=8, pipeline="simple")), ("vit", dict(microbatches=4)),
    ("gpt2", dict(microbatches=2)), ("skips", dict(microbatches=4)),
    *[(kind, dict(microbatches=4, deterministic_server=True)) for kind in ("bert", "mlp", "gpt2")],
]
results["cases"] = [pipeline_cases.equality(kind, {"partitions": 2, **more}) for kind, more in cases]
results["with dropout"] = [pipeline_repeats.independent("noisy", (1, 2))]
result(results)
"""
FOUR = """
whole, half = dict(partitions=4), dict(partitions=2, ddp=True)
cases = [
    ("bert", dict(whole, microbatches=4)), ("vit", dict(whole, microbatches=8)), ("gpt2", dict(whole, microbatches=4)),
    ("skips", dict(whole, microbatches=4)), ("dicts", dict(whole, microbatches=4, pipeline="simple")),
    ("mlp", dict(half, microbatches=4)), ("bert", dict(half, microbatches=4, placement_strategy="spread")),
    ("vit", dict(half, microbatches=2)), ("roberta", dict(half, microbatches=4, placement_strategy="TPD")),
    ("gpt2", dict(half, microbatches=2, pipeline="simple")),
    *[(kind, dict(whole, microbatches=4, deterministic_server=True)) for kind in ("bert", "gpt2")],
]
results["cases"] = [pipeline_cases.equality(kind, config) for kind, config in cases]
branches = dict(whole, microbatches=4, deterministic_server=True)
results["alike"] = pipeline_repeats.alike(*[pipeline_repeats.trained("skips", branches) for _ in range(2)])
noisy = [("noisy", "library"), ("bert", "transformers"), ("gpt2", None)]
results["with dropout"] = [pipeline_repeats.independent(kind, (1, 2, 4), checkpoints) for kind, checkpoints in noisy]
results["separated"] = pipeline_faults.separated("bert", dict(whole, microbatches=8))
result(results)
"""


GLOO, NCCL_DOUBLE = rank_jobs.OPENING, rank_jobs.OVER_NCCL_DOUBLE
ON_2 = pytest.param((2, TWO, GLOO), id="2 ranks")
ON_4 = pytest.param((4, FOUR, GLOO), id="4 ranks", marks=pytest.mark.nightly)
NIGHTLY = [
    pytest.param((2, MORE_ON_TWO, GLOO), id="2 ranks, more models", marks=pytest.mark.nightly),
    pytest.param((2, TWO, NCCL_DOUBLE), id="2 ranks, NCCL's double", marks=pytest.mark.nightly),
    pytest.param((2, MORE_ON_TWO, NCCL_DOUBLE), id="2 ranks, more models, NCCL's double", marks=pytest.mark.nightly),
    pytest.param((4, FOUR, NCCL_DOUBLE), id="4 ranks, NCCL's double", marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=[ON_2, ON_4, *NIGHTLY])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The results of each rank."""
    size, body, opening = request.param
    folder = tmp_path_factory.mktemp("ranks")
    return rank_jobs.run(BODY + BOTH + body, size, folder, opening, imports=["pipeline_models"])


def test_pipeline_equals_one_process(ranks: list[Any]) -> None:
    """Loss, gradients, parameters and momentum of 9 steps, within 2e-6 or three times the noise."""
    cases = ranks[0]["cases"]
    assert len(cases) >= 4
    assert [each["case"] for each in cases if each["bad"]] == [], cases


@pytest.mark.parametrize("ranks", [ON_4], indirect=True)
def test_both_ends_of_a_transfer_are_requested_together(ranks: list[Any]) -> None:
    """Otherwise two owners see their transfers in different orders, and gradients are swapped."""
    count, apart = ranks[0]["separated"]
    assert count > 100
    assert not apart


def test_deterministic_server_equals_one_process_to_the_last_bit(ranks: list[Any]) -> None:
    """Also with tied embeddings; the process runs the microbatches in order."""
    exact = [each for each in ranks[0]["cases"] if "deterministic_server" in each["case"]]
    assert exact
    assert [each["case"] for each in exact if any(each["errors"].values())] == []


@pytest.mark.parametrize("ranks", [ON_4], indirect=True)
def test_deterministic_server_repeats_to_the_last_bit(ranks: list[Any]) -> None:
    """Also if several ranks use one tensor, whose gradients are then added in another order than in one process."""
    assert ranks[0]["alike"]


def test_dropout_does_not_depend_on_the_number_of_partitions(ranks: list[Any]) -> None:
    """It must not depend on activation checkpoints either, which compute it twice."""
    assert max(ranks[0]["with dropout"]) < 2e-6


def test_two_forward_passes_before_one_backward_pass(ranks: list[Any]) -> None:
    assert ranks[0]["two forwards"] < 1e-6


MISTAKES = {
    "remote": "the module is broken",
    "form": "the result's form must depend only on the inputs' shapes",
    "mismatch": "every rank must call the same step functions in the same order",
    "batch": "A batch of 3 can't be split into 2 microbatches",
    "argument": "which is on rank 1: It can't be sent to another rank",
    "local backward": "call model.backward(loss)",
    "twice backward": "A second backward pass goes through blocks.3",
    "step in step": "was called within a step",
    "outside": "The model was called outside a step",
    "backward outside": "model.backward was called outside a step",
    "module state": "call state_dict() or local_parameters() of smp.DistributedModel",
    "second model": "another one is wrapped already",
    "comm hook": "replicas average their gradients after each step; leave it out",
    "join": "give every rank as many batches as the others",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_raises_on_every_rank(ranks: list[Any], name: str) -> None:
    for rank in ranks:
        assert MISTAKES[name] in str(rank["faults"][name])


def test_module_outside_a_step_is_an_error(ranks: list[Any]) -> None:
    assert "was called outside a step" in ranks[0]["faults"]["module outside"]
    assert all(rank["faults"]["module outside"] for rank in ranks)


def test_wrapping_again_returns_the_same_model(ranks: list[Any]) -> None:
    assert [rank["faults"]["same model"] for rank in ranks] == [None] * len(ranks)


@pytest.mark.parametrize(
    "name",
    [
        "gradients_add_up",
        "some_passes_per_exchange",
        "sums_over_microbatches",
        "evaluates",
        "checkpointed",
        "autocast",
        "statistics",
        "changed_in_place",
        "clipped",
    ],
)
def test_feature_equals_one_process(ranks: list[Any], name: str) -> None:
    assert max(rank["features"][name] for rank in ranks) < 2e-6


def test_hooks_run_once_on_the_rank_of_their_module(ranks: list[Any]) -> None:
    """Two steps of two microbatches; the first module is on partition 0, the last on 1."""
    assert ranks[0]["features"]["hooks"] == [{"a": 4, "out": 0}, {"a": 0, "out": 4}]


def test_local_state_dicts_resume_to_the_last_bit(ranks: list[Any]) -> None:
    assert [rank["features"]["resumes"] for rank in ranks] == [[True, True, True]] * len(ranks)


def test_pipeline_sends_hardly_more_than_the_least_bytes(ranks: list[Any]) -> None:
    """Per microbatch: hidden states, mask and the logits' gradient one way; their gradient and the logits back."""
    sent, (batch, length) = ranks[0]["features"]["wire_bytes"]
    hidden, logits, mask = batch * length * 32 * 4, batch * length * 2 * 4, batch * length * length
    assert sum(sent) <= 1.05 * (2 * hidden + 2 * logits + mask)


FAILS = """
smp.init({"partitions": 4})
import abandoned_receives
result([abandoned_receives.failed_step() for _ in range(6)])
"""


@pytest.mark.nightly
def test_failed_backward_pass_of_the_first_rank_ends_the_step_everywhere(tmp_path: Path) -> None:
    """Half of these steps hung while gloo had receives that nobody kept."""
    first, *others = rank_jobs.run(FAILS, 4, tmp_path, imports=["pipeline_models"], limit=120.0)
    assert all("has no attribute 'args'" in each for each in first)
    assert all("The step" in each and "failed" in each for rank in others for each in rank)
