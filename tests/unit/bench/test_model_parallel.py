"""bench.model_parallel_equality, _memory and _overlap: their verdicts, and a run of a tiny model."""

from typing import Any

import pytest

from bench import model_parallel_equality, model_parallel_memory, model_parallel_overlap

TINY = ["--layers", "2", "--hidden", "16", "--rows", "4", "--length", "8", "--words", "50"]


def case(gradients: float, limit: float = 2e-6) -> dict[str, Any]:
    names = model_parallel_equality.QUANTITIES
    found = dict.fromkeys(names, 0.0) | {"gradients": gradients}
    config = {"partitions": 2, "microbatches": 4, "pipeline": "simple", "placement_strategy": "spread"}
    bad = {"gradients": (gradients, limit)} if gradients > limit else {}
    return {"kind": "mlp", "config": config, "errors": found, "limits": dict.fromkeys(names, limit), "bad": bad}


@pytest.mark.parametrize(
    ("group", "verdict"),
    [
        ([case(1e-7), case(1e-6)], "yes"),
        ([case(1e-7), case(3e-6)], "no"),
        ([case(3e-6, 4e-6)], "yes"),
        ([case(0.0, 0.0)], "to the last bit"),
        ([case(1e-9, 0.0)], "no"),
    ],
)
def test_verdict_of_group_depends_on_limits(group: list[dict[str, Any]], verdict: str) -> None:
    assert model_parallel_equality.equal(group) == verdict


def result(cut: str, two: float, sent: int = 100) -> dict[str, Any]:
    by_two = {"one by two": 1.6 / two, "both by two": 1.7 / two}
    return {"cut": cut, "microbatches": 4, "one": 1.6, "two": two, "sent": sent, "least": 100, **by_two}


def test_missed_targets_are_reported() -> None:
    assert model_parallel_overlap.missed([result("coarse", 1.2), result("automatic", 1.5)]) == []
    slow = [result("coarse", 1.3), result("automatic", 1.6), result("automatic", 2.0, sent=106)]
    assert model_parallel_overlap.missed(slow) == [
        "the coarse cut reaches 77% of the ideal with 4 microbatches, the target is 80%",
        "the automatic cut reaches 62% of the ideal with 4 microbatches, the target is 65%",
        "automatic, 4 microbatches: 106.0% of the least bytes",
    ]


@pytest.mark.nightly
def test_memory_has_a_row_per_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert model_parallel_memory.main([*TINY, "--partitions", "1,2", "--microbatches", "2"]) == 0
    page = capsys.readouterr().out
    rows = [line.split("|")[1:-1] for line in page.splitlines() if line.startswith("|") and line[2].isdecimal()]
    assert [row[0].strip() for row in rows] == ["1", "2", "2", "0", "1", "0", "1"]
    assert [len(row) for row in rows] == [8] * 3 + [6] * 2 + [4] * 2


@pytest.mark.nightly
def test_pipeline_sends_only_the_least_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    model_parallel_overlap.main([*TINY, "--rounds", "1", "--microbatches", "2"])
    page = capsys.readouterr().out
    assert "of the least bytes" not in page
    rows = [line for line in page.splitlines() if line.endswith("100.0% |")]
    assert len(rows) == len(model_parallel_overlap.CUTS)
