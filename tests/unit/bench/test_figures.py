"""Rates, percentiles and outcomes of given loads."""

import json

import pytest

from bench.serving import figures
from bench.serving.load import LOST, Load, Reply


def reply(seconds: float = 0.1, status: int = 200, body: bytes = b"", late: float = 0.0) -> Reply:
    return Reply(0.0, late, seconds, status, body, "gone" if status == LOST else "")


def answered(*spans: tuple[int, int, str], status: int = 200, listed: bool = False) -> Load:
    found = [{"score": 0.5, "start": start, "end": end, "answer": text} for start, end, text in spans]
    bodies = [json.dumps([each] if listed else each).encode() for each in found]
    return Load(tuple(reply(status=status, body=body) for body in bodies), 1.0, 0.0)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([3, 1, 2], 0.5, 2),
        ([1, 2, 3, 4], 0.5, 2),
        (list(range(1, 101)), 0.99, 99),
        (list(range(1, 1001)), 0.99, 990),
        ([7], 0.99, 7),
        ([5, 9], 0.99, 9),
        ([4, 2], 0.0, 2),
    ],
)
def test_nearest_rank_percentile(values: list[float], share: float, expected: float) -> None:
    assert figures.percentile(values, share) == expected


def test_closed_loop_figures_count_only_answers() -> None:
    load = Load((*(reply(number / 1000) for number in range(1, 101)), reply(9.0, 503), reply(9.0, LOST)), 4.0, 0.2)
    found = figures.closed_figures(load)
    assert found == figures.ClosedFigures(per_second=25.0, p50_ms=50.0, p99_ms=99.0, failed=2, client_share=0.05)


def test_soak_figures_separate_outcomes() -> None:
    statuses = [200] * 6 + [503] * 5 + [504] * 4 + [LOST] * 3 + [500, 413]
    load = Load(tuple(reply(0.5, status, late=0.02) for status in statuses), 2.0, 0.1)
    pings = Load((*(reply(0.01) for _ in range(8)), reply(0.3, 503)), 2.0, 0.1)
    found = figures.soak_figures(load, pings)
    assert (found.sent, found.answered, found.refused, found.timed_out, found.lost, found.others) == (20, 6, 5, 4, 3, 2)
    assert found.per_second == 3.0
    assert (found.p50_ms, found.p99_ms, found.ping_p99_ms, found.late_p99_ms) == (500.0, 500.0, 300.0, 20.0)
    assert (found.pings, found.pings_failed, found.client_share) == (9, 1, 0.05)


def test_agreement_counts_spans_and_texts() -> None:
    ours = answered((0, 5, "Paris"), (9, 14, "Paris"), (3, 4, "x"))
    peers = answered((0, 5, "Paris"), (0, 5, "Paris"), (3, 5, "xy"), listed=True)
    assert figures.agreement(ours, peers) == figures.Agreement(requests=3, spans=1, texts=2)


def test_failed_request_counts_as_different() -> None:
    ours = answered((0, 5, "Paris"))
    assert figures.agreement(ours, answered((0, 5, "Paris"), status=500)) == figures.Agreement(1, 0, 0)
    assert figures.agreement(answered((0, 5, "Paris"), status=503), ours) == figures.Agreement(1, 0, 0)
