"""Sharded data parallelism and the sharded optimizer state, on real ranks against one process."""

import sys
from pathlib import Path
from typing import Any

import pytest
import rank_jobs
from torch import nn

from berth.smdistributed.modelparallel.torch import fully_sharded, state_owners

CASES = """
import logging
logging.disable(logging.WARNING)
import pipeline_cases
sdp, tp, own = {"sharded_data_parallel_degree": 2}, {"tensor_parallel_degree": 2}, {"shard_optimizer_state": True}
def compared(*cases):
    common = {"ddp": True, "microbatches": 2, "sdp_gradient_clipping": 0}
    return [pipeline_cases.equality(kind, {**common, **config}) for kind, config in cases]
"""
TWO = """
result(compared(("bert-3", sdp), ("gpt2", sdp), ("vit", {**sdp, "microbatches": 1}), ("gpt2", own)))
"""
FOUR = """
result(compared(
    ("mlp", sdp), ("roberta", {**sdp, "sharded_data_parallel_degree": 4}), ("llama", sdp),
    ("bert-3", {**sdp, **tp}), ("gpt2-3", {**sdp, **tp, "prescaled_batch": True}),
    ("bert-3", {**own, **tp}), ("gpt2", {**own, "partitions": 2}), ("mlp", own),
    ("vit", {**own, **tp, "pipeline_parallel_degree": 2}),
))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "body", "opening"),
    [
        pytest.param(2, TWO, rank_jobs.OPENING, id="2 ranks"),
        pytest.param(4, FOUR, rank_jobs.OPENING, id="4 ranks", marks=pytest.mark.nightly),
        pytest.param(4, FOUR, rank_jobs.OVER_NCCL_DOUBLE, id="4 ranks, NCCL's double", marks=pytest.mark.nightly),
    ],
)
def test_sharded_ranks_equal_one_process(size: int, body: str, opening: str, tmp_path: Path) -> None:
    cases = rank_jobs.run(CASES + body, size, tmp_path, opening, imports=["pipeline_models"])[0]
    assert [each["case"] for each in cases if each["bad"]] == [], cases


FEATURES = """
smp.init({"ddp": True})
import sharding_features
result(sharding_features.all_features(RESULTS))
"""


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of two ranks."""
    return rank_jobs.run(FEATURES, 2, tmp_path_factory.mktemp("features"), imports=["pipeline_models"])


PASSES = """
smp.init({"ddp": True})
import sharding_features
result(sharding_features.some_passes_per_exchange(3))
"""


@pytest.mark.nightly
def test_gradients_of_several_steps_add_up_in_groups_of_replicas(tmp_path: Path) -> None:
    """backward_passes_per_step on two groups of two replicas."""
    for gradients, parameters in rank_jobs.run(PASSES, 4, tmp_path, imports=["pipeline_models"]):
        assert gradients < 2e-6
        assert parameters < 2e-6


@pytest.mark.slow
def test_rank_holds_a_part_of_parameters_and_states(features: list[dict[str, Any]]) -> None:
    """With sharded states only, a rank has all parameters and half of the states."""
    for rank in features:
        parameters, states = rank["holds"]["sdp"]
        assert (parameters, states) == (pytest.approx(0.5, abs=0.02), pytest.approx(0.5, abs=0.02))
        parameters, states = rank["holds"]["states"]
        assert (parameters, states) == (1.0, pytest.approx(0.5, abs=0.1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sdp", "states"])
def test_checkpoints_of_sharded_states_resume_to_the_last_bit(features: list[dict[str, Any]], kind: str) -> None:
    """A full one also in one process with plain torch."""
    for rank in features:
        assert rank["resumes"][kind]["same"] == {"partial": True, "full": True, "loaded before wrapping": True}
    names = {
        "sdp": ["model_0_0_0.pt", "model_0_0_1.pt", "optimizer_0_0_0.pt", "optimizer_0_0_1.pt"],
        "states": ["model_0_0.pt", "optimizer_0_0_0.pt", "optimizer_0_0_1.pt"],
    }
    assert features[0]["resumes"][kind]["files"] == sorted(["manifest.json", "user_content.pt", *names[kind]])
    assert features[0]["resumes"][kind]["one process"] < 1e-6


@pytest.mark.slow
def test_partial_checkpoint_needs_the_same_sharding(features: list[dict[str, Any]]) -> None:
    assert "was saved with sharded_data_parallel_degree 2, and this job has 1" in features[0]["resumes"]["sdp"]["other"]
    assert "was saved with number of replicas 2, and this job has 1" in features[0]["resumes"]["states"]["other"]


@pytest.mark.slow
def test_trainers_way_to_save_finds_each_ranks_file(features: list[dict[str, Any]]) -> None:
    assert features[0]["saved"] == ["optimizer.pt_0_0_0", "optimizer.pt_0_0_1"]
    assert all(rank["loaded"] for rank in features)


@pytest.mark.slow
def test_sharded_gradients_are_clipped_in_the_optimizers_step(features: list[dict[str, Any]]) -> None:
    assert features[0]["clips"]["norm"] < 1e-6
    assert features[0]["clips"]["parameters"] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_is_close_to_that_of_one_rank(features: list[dict[str, Any]], precision: str) -> None:
    assert features[0]["half"][precision] < 5e-3


@pytest.mark.slow
def test_overflow_on_one_rank_skips_the_step_on_all(features: list[dict[str, Any]]) -> None:
    assert [each["overflows"] for each in features] == [{"sdp": (True, True), "states": (True, True)}] * 2


@pytest.mark.slow
def test_optimizer_may_be_created_before_the_model_is_wrapped(features: list[dict[str, Any]]) -> None:
    assert features[0]["early"] == 0.0


@pytest.mark.slow
def test_parameters_that_are_added_later_are_updated_on_all_ranks(features: list[dict[str, Any]]) -> None:
    assert features[0]["added"] == {"differs": 0.0, "changed": True}


@pytest.mark.slow
def test_backward_outside_a_step_and_activation_checkpoints(features: list[dict[str, Any]]) -> None:
    assert features[0]["outside"] < 2e-6
    assert features[0]["checkpointed"] == 0.0


@pytest.mark.slow
def test_sparse_gradients_are_refused_by_name(features: list[dict[str, Any]]) -> None:
    assert "words has sparse gradients, which can't be sharded" in features[0]["sparse"]


@pytest.mark.slow
def test_scripts_own_error_stays_as_it_is(features: list[dict[str, Any]]) -> None:
    errors = [rank["mistakes"]["own error"] for rank in features]
    assert all(each.startswith("RuntimeError: ") and "RankLost" not in each for each in errors), errors


@pytest.mark.slow
def test_module_with_sharded_parameters_does_not_give_its_state(features: list[dict[str, Any]]) -> None:
    """It would be a part, which a script might save as the whole."""
    errors = [error for rank in features for error in rank["mistakes"]["module's state"]]
    assert all("call state_dict() of smp.DistributedModel, on every rank" in each for each in errors), errors


def test_owners_share_the_load() -> None:
    """The largest first: 8 | 5 + 3."""
    assert state_owners.owners([3, 8, 5], (4, 6)) == [6, 4, 6]
    assert state_owners.owners([], (0, 1)) == []
    assert state_owners.owners([1, 1], (0, 1, 2)) == [0, 1]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 4)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(2))
        self.heads = nn.ModuleList([nn.Linear(4, 8), nn.Linear(4, 2)])
        self.heads[0].weight = self.words.weight


def test_layers_with_shared_parameters_belong_to_the_root() -> None:
    model = Tied()
    assert list(fully_sharded._layers(model)) == [*model.layers, model.heads[1]]


def test_torch_without_fully_shard_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.distributed.fsdp", None)
    with pytest.raises(RuntimeError, match=r"sharded_data_parallel_degree needs torch 2\.6 or newer, and this is"):
        fully_sharded.shard(nn.Linear(2, 2), "cpu")
