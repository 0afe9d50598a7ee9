"""Verdicts of jobs with a slow host, and the table."""

import pytest

from bench.peers import Case, Result, render

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


def test_table_marks_wrong_jobs() -> None:
    lines = render([result((0, 0), ""), result((1, 1), LOST)])
    assert "| algo-2 | paused | 9.0 | 9.0 | 0, 0 |" in lines
    assert "| algo-2 | paused | 9.0 | 9.0 | 1, 1 WRONG |" in lines
    assert lines[-1] == "1 of 2 jobs did not end as expected."
