"""Tensor parallelism on real ranks against one process; nightly on 4 and 8 ranks, and over a double of NCCL."""

from pathlib import Path
from typing import Any

import pytest
import rank_jobs

GLOO, NCCL_DOUBLE = rank_jobs.OPENING, rank_jobs.OVER_NCCL_DOUBLE
CASES = """
import logging
logging.disable(logging.WARNING)
import pipeline_cases, tensor_features
def compared(*cases):
    with_embeddings, common = ("gpt2", "roberta-3"), {"ddp": True, "microbatches": 2}
    return [
        pipeline_cases.equality(kind, {**common, **config}, embeddings=kind in with_embeddings)
        for kind, config in cases
    ]
"""
TWO = """
tp = {"tensor_parallel_degree": 2}
result(compared(
    ("mlp", tp), ("bert-3", tp), ("gpt2", {**tp, "prescaled_batch": True}), ("llama", tp),
    ("vit-3", {**tp, "microbatches": 1}), ("bloom-3", tp), ("falcon", tp), ("t5", tp),
))
"""
MORE_ON_TWO = """
tp = {"tensor_parallel_degree": 2}
result(compared(
    *((kind, tp) for kind in ("gptj-3", "neox-3", "gpt2-3", "roberta-3", "vit", "dicts", "skips")),
    *((kind, tp) for kind in ("bloom", "falcon_of_7b", "falcon_of_rw", "distilbert")),
    *((kind, {**tp, "prescaled_batch": True, "microbatches": 4}) for kind in ("bert", "llama", "vit", "mlp", "t5")),
))
"""
FOUR = """
tp, both = {"tensor_parallel_degree": 2}, {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2}
result(compared(
    *((kind, {**both, "microbatches": 4}) for kind in ("bert-3", "vit", "mlp", "dicts", "skips", "gptj-3")),
    *((kind, both) for kind in ("bloom-3", "falcon", "t5")),
    ("gpt2", {**both, "prescaled_batch": True}), ("roberta-3", {**both, "placement_strategy": "spread"}),
    ("llama", {**both, "microbatches": 8, "pipeline": "simple"}), ("neox", {**both, "partitions": 4}),
    ("bert", {**both, "deterministic_server": True, "microbatches": 4}),
    ("vit", {**tp, "microbatches": 1}), ("gpt2-3", tp), ("llama", {**tp, "prescaled_batch": True}),
    ("gptj-5", {"tensor_parallel_degree": 4}), ("bert", {"tensor_parallel_degree": 4, "prescaled_batch": True}),
))
"""
EIGHT = """
all_three = {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2}
result(compared(
    ("gpt2-3", all_three), ("bert", {**all_three, "placement_strategy": "PTD"}),
    ("mlp", {**all_three, "prescaled_batch": True, "placement_strategy": "spread"}),
))
"""
ARRIVAL = """
import threading
from smdistributed.modelparallel.torch import coordinator
def over(what):
    result(what)
    os._exit(0)
made = coordinator.Schedule
model.Schedule = lambda *args, in_turn, **how: made(*args, in_turn=False, **how)
threading.Timer(40, over, ["hangs"]).start()
both = {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "microbatches": 8}
try:
    over(bool(compared(("bert", both))[0].get("bad")) and "is wrong")
except Exception as error:
    over(f"raises {type(error).__name__}")
"""


def nightly(size: int, body: str, opening: str, name: str) -> Any:
    return pytest.param(size, body, opening, id=name, marks=pytest.mark.nightly)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "body", "opening"),
    [
        pytest.param(2, TWO, GLOO, id="2 ranks"),
        nightly(2, MORE_ON_TWO, GLOO, "2 ranks, more models"),
        nightly(4, FOUR, GLOO, "4 ranks"),
        nightly(4, FOUR, NCCL_DOUBLE, "4 ranks, NCCL's double"),
        nightly(8, EIGHT, NCCL_DOUBLE, "8 ranks, NCCL's double"),
    ],
)
def test_tensor_parallel_ranks_equal_one_process(size: int, body: str, opening: str, tmp_path: Path) -> None:
    """Loss, gradients, parameters and momentum of 9 steps; what all ranks hold stays equal to the last bit."""
    cases = rank_jobs.run(CASES + body, size, tmp_path, opening, imports=["pipeline_models"])[0]
    assert [each["case"] for each in cases if each["bad"]] == [], cases
    assert all(each["distributed"] for each in cases if "falcon_of" not in each["case"])


@pytest.mark.nightly
def test_microbatches_in_order_of_arrival_fail(tmp_path: Path) -> None:
    """Why they take turns: two coordinators see replies in different orders."""
    patched = CASES + "from smdistributed.modelparallel.torch import model" + ARRIVAL
    ranks = rank_jobs.run(patched, 4, tmp_path, NCCL_DOUBLE, imports=["pipeline_models"])
    assert set(ranks) != {False}, ranks


FEATURES = """
import logging
logging.disable(logging.WARNING)
smp.init({"ddp": True})
import tensor_features
result(tensor_features.all_features(RESULTS))
"""
ONE_RANK = """
smp.init({"ddp": True})
import tensor_features
kinds = (tensor_features.KIND, "bloom")
result({kind: tensor_features.with_hidden_dropout(kind, tensor_parallel_degree=1) for kind in kinds})
"""


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of two ranks."""
    folder = tmp_path_factory.mktemp("features")
    return rank_jobs.run(FEATURES, 2, folder, imports=["pipeline_models"])


@pytest.mark.slow
def test_norm_of_gradients_counts_each_share_once(features: list[dict[str, Any]]) -> None:
    norm, gradients = features[0]["clips"]
    assert norm < 1e-6
    assert gradients < 4e-6


@pytest.mark.slow
def test_dropout_repeats_with_and_without_checkpoints(features: list[dict[str, Any]]) -> None:
    same, difference, drops = features[0]["drops alike"]
    assert same
    assert difference < 1e-6
    assert drops


@pytest.mark.slow
def test_hidden_dropout_equals_that_of_one_rank(features: list[dict[str, Any]], tmp_path: Path) -> None:
    """Bloom's attention draws it in itself, after the dropout of its heads."""
    (alone,) = rank_jobs.run(ONE_RANK, 1, tmp_path, imports=["pipeline_models"])
    assert alone.keys() == features[0]["with hidden dropout"].keys()
    for kind, losses in alone.items():
        assert features[0]["with hidden dropout"][kind] == pytest.approx(losses, rel=1e-6), kind


@pytest.mark.slow
def test_backward_outside_a_step_exchanges_gradients(features: list[dict[str, Any]]) -> None:
    assert features[0]["outside"] < 2e-6


@pytest.mark.slow
def test_checkpoints_hold_shares_or_the_whole_and_resume_to_the_last_bit(features: list[dict[str, Any]]) -> None:
    resumed, files = features[0]["resumes"]
    assert resumed == [True, True]
    shares = [f"{kind}_0_{rank}.pt" for kind in ("model", "optimizer") for rank in range(2)]
    assert files == sorted(["manifest.json", *shares, "user_content.pt"])
    assert features[0]["elsewhere"] == 0.0


@pytest.mark.slow
def test_rank_holds_its_share_of_uneven_heads(features: list[dict[str, Any]]) -> None:
    assert [round(each["holds"], 2) for each in features] == [0.5, 0.63]


@pytest.mark.slow
def test_script_chooses_modules_by_context_and_by_function(features: list[dict[str, Any]]) -> None:
    """An embedding must be named itself. What can't be split stays whole, and the first rank says why."""
    names, late, printed = features[0]["chosen"]
    assert names == ["first", "words", "third"]
    assert printed.splitlines() == [
        "smp: first and 2 more modules are split over 2 ranks",
        "smp: narrow is not split: it has fewer features (1) than ranks (2)",
        "smp: tied is not split: it shares a parameter with another module",
        "smp: layer is not split: it has fewer attention heads (1) than ranks (2)",
    ]
    assert "call smp.set_tensor_parallelism before DistributedModel" in late


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "facts", "split"),
    [
        ("t5", [("encoder.block.0 and 2 more", "position biases"), ("decoder.block.0 and 2 more", "biases")], 1),
        ("falcon_of_7b", [("transformer.h.0 and 3 more", "pairs of keys and values (1)"), ("lm_head", "shares")], 0),
        ("falcon_of_rw", [("transformer.h.0 and 3 more", "alibi"), ("lm_head", "shares a parameter")], 0),
        ("bloom", [("lm_head", "shares a parameter")], 4),
        pytest.param("dicts", [("smp: 0 and 3 more", "torch reads its weights")], 1, id="torch"),
    ],
)
def test_first_rank_prints_a_line_per_list_of_layers_that_stay_whole(
    model: str, facts: list[tuple[str, str]], split: int, features: list[dict[str, Any]]
) -> None:
    lines, count = features[0]["whole layers"][model]
    assert len(lines) == len(facts), lines
    assert all(name in line and reason in line for line, (name, reason) in zip(lines, facts, strict=True)), lines
    assert count == split
    assert features[1]["whole layers"][model] == ([], split)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("module's state", "call state_dict() of smp.DistributedModel, on every rank"),
        ("unknown input", "bert got a tensor in the argument encoder_attention_mask"),
    ],
)
def test_mistake_raises_on_every_rank(features: list[dict[str, Any]], mistake: str, words: str) -> None:
    assert all(words in each["mistakes"][mistake] for each in features)


@pytest.mark.slow
def test_half_precision_is_close_to_that_of_one_rank(features: list[dict[str, Any]]) -> None:
    assert features[0]["half"]["fp16"] < 5e-3
    assert features[0]["half"]["bf16"] < 5e-3


@pytest.mark.slow
def test_overflow_of_one_share_skips_the_step_on_all_ranks(features: list[dict[str, Any]]) -> None:
    assert [each["overflows"] for each in features] == [(True, True)] * 2


LAYERS = """
smp.init({"ddp": True})
import tensor_layers
result(tensor_layers.trained(tensor_parallel_degree=dist.get_world_size()))
"""


@pytest.mark.slow
def test_layers_of_smp_nn_equal_those_of_one_rank(tmp_path: Path) -> None:
    """Cross attention, a causal mask, three heads on two ranks, and a registered class of a script."""
    results = []
    for size in (1, 2):
        folder = tmp_path / str(size)
        folder.mkdir()
        results.append(rank_jobs.run(LAYERS, size, folder, imports=["pipeline_models"])[0])
    (losses, weights, none, _), (split_losses, split_weights, distributed, kind) = results
    assert split_losses == pytest.approx(losses, rel=1e-6)
    assert list(weights) == list(split_weights)
    assert max(float((weights[name] - split_weights[name]).abs().max()) for name in weights) < 5e-6
    assert (none, distributed, kind) == (0, 13, "DistributedTransformer")
    assert losses[-1] < losses[0]
