"""Verdicts of jobs with a slow host."""

import pytest

from bench.peers import Case, Result

LOST = "berth: failed: host algo-2 was lost while the job ran (no sign of life for 12 s)\n"


def result(codes: tuple[int, int], log: str, *, lost: bool = False) -> Result:
    hosts = ("algo-1", "algo-2")
    return Result(
        Case("paused", pause=9, lost=lost), dict.fromkeys(hosts, 9.0), dict(zip(hosts, codes, strict=True)), log
    )


@pytest.mark.parametrize(
    ("ended", "right"),
    [
        (result((0, 0), ""), True),
        (result((1, 1), LOST), False),
        (result((1, 1), LOST, lost=True), True),
        (result((0, 0), "", lost=True), False),
        (result((1, 1), "", lost=True), False),
    ],
)
def test_verdict_of_job(ended: Result, right: bool) -> None:
    assert ended.right is right
