"""bench.model_parallel_equality, _memory and _overlap: what they run, count and say; each once, at a tiny size."""

from typing import Any

import pytest

from bench import model_parallel_equality, model_parallel_memory, model_parallel_overlap
from bench.scripts.wire_bytes import Called, Taken, least_bytes

TINY = ["--layers", "2", "--hidden", "16", "--rows", "4", "--length", "8", "--words", "50"]


def test_the_product_has_all_that_was_asked_for() -> None:
    found = [case for size in (2, 4, 8) for case in model_parallel_equality.product(size, ["mlp"], range(1, 9))]
    shapes = {
        (config["partitions"], size // config["partitions"], config["placement_strategy"], config["pipeline"])
        for size in (2, 4, 8)
        for _, config in model_parallel_equality.product(size, ["mlp"], range(1, 9))
    }
    both = {(partitions, 1, "cluster") for partitions in (2, 4)}
    both |= {(partitions, 2, placement) for partitions in (2, 4) for placement in ("cluster", "spread")}
    assert shapes == {(*each, pipeline) for each in both for pipeline in ("interleaved", "simple")}
    assert {config["microbatches"] for _, config in found} == set(range(1, 9))
    assert all(config.get("ddp") or config.get("deterministic_server") for _, config in found)


def case(gradients: float, limit: float = 2e-6) -> dict[str, Any]:
    names = model_parallel_equality.QUANTITIES
    found = dict.fromkeys(names, 0.0) | {"gradients": gradients}
    config = {"partitions": 2, "microbatches": 4, "pipeline": "simple", "placement_strategy": "spread"}
    bad = {"gradients": (gradients, limit)} if gradients > limit else {}
    return {"kind": "mlp", "config": config, "found": found, "limits": dict.fromkeys(names, limit), "bad": bad}


@pytest.mark.parametrize(
    ("group", "word"),
    [
        ([case(1e-7), case(1e-6)], "yes"),
        ([case(1e-7), case(3e-6)], "no"),
        ([case(3e-6, 4e-6)], "yes"),
        ([case(0.0, 0.0)], "to the last bit"),
        ([case(1e-9, 0.0)], "no"),
    ],
)
def test_cases_are_equal_within_their_limits(group: list[dict[str, Any]], word: str) -> None:
    assert model_parallel_equality.equal(group) == word


def test_a_row_has_the_largest_difference_and_a_limit_that_is_not_the_usual() -> None:
    rows = list(model_parallel_equality.each_row([(4, case(1e-7)), (4, case(3e-6, 4e-6)), (2, case(0.0))]))
    assert "| 3.0e-06 (limit 4.0e-06) |" in rows[0]
    assert rows[0].startswith("| mlp | 2 | 2 | spread | simple | 4, 4 |")
    assert rows[1].startswith("| mlp | 2 | 1 | – | simple | 4 |")


def test_a_tensor_goes_once_to_each_partition_that_takes_it() -> None:
    """Partition 0 makes `hidden` and a mask for two modules of partition 1, which gives logits to the step function."""
    hidden, mask = Taken(1, 100, wants_gradient=True), Taken(2, 10, wants_gradient=False)
    between, logits = Taken(3, 100, wants_gradient=True), Taken(4, 4, wants_gradient=True)
    calls = [Called(1, (hidden, mask), (between,)), Called(1, (between, mask), (logits,))]
    assert least_bytes(calls) == 2 * 100 + 10 + 2 * 4
    assert least_bytes([calls[0], Called(2, (between, mask), (logits,))]) == 2 * 100 + 10 + 2 * 100 + 10 + 2 * 4
    assert least_bytes([Called(0, (hidden,), (logits,))]) == 0


def timed(cut: str, two: float, sent: int = 100) -> dict[str, Any]:
    return {"cut": cut, "microbatches": 4, "one": 1.6, "two": two, "speedup": 1.6 / two, "sent": sent, "least": 100}


def test_the_ideal_is_what_the_bubble_leaves() -> None:
    assert model_parallel_overlap.ideal(1.6, 4) == pytest.approx(1.0)
    assert model_parallel_overlap.ratio(timed("coarse", 1.25)) == pytest.approx(0.8)


def test_a_missed_target_is_named() -> None:
    assert model_parallel_overlap.missed([timed("coarse", 1.2), timed("automatic", 1.5)]) == []
    slow = [timed("coarse", 1.3), timed("automatic", 1.6), timed("automatic", 2.0, sent=106)]
    assert model_parallel_overlap.missed(slow) == [
        "the coarse cut reaches 77% of the ideal with 4 microbatches, 80% were to be reached",
        "the automatic cut reaches 62% of the ideal with 4 microbatches, 65% were to be reached",
        "automatic, 4 microbatches: 106.0% of the least bytes",
    ]


@pytest.mark.nightly
def test_memory_is_split(capsys: pytest.CaptureFixture[str]) -> None:
    assert model_parallel_memory.main([*TINY, "--partitions", "1,2", "--microbatches", "2"]) == 0
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line[:3] in ("| 1", "| 2")]
    assert [(line[0], line[1]) for line in lines] == [("| 1", "0"), ("| 2", "0"), ("| 2", "1")]


@pytest.mark.nightly
def test_no_byte_too_many_goes_over_the_wire(capsys: pytest.CaptureFixture[str]) -> None:
    model_parallel_overlap.main([*TINY, "--rounds", "1", "--microbatches", "2"])
    told = capsys.readouterr().out
    assert "of the least bytes" not in told
    rows = [line for line in told.splitlines() if line.endswith("100.0% |")]
    assert len(rows) == len(model_parallel_overlap.CUTS)
