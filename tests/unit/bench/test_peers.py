"""What counts as right where one host of a job hardly runs, and the page that says so."""

import pytest

from bench.peers import Case, Result, render

WARNED = "berth: warning: no sign of life from host algo-2 for 6 s; after 12 s (BERTH_PEER_TIMEOUT) the job ends\n"
AGAIN = "berth: rendezvous: host algo-2 is heard from again, after 9 s\n"
LOST = "berth: failed: host algo-2 was lost while the job ran (no sign of life for 12 s)\n"


def result(codes: tuple[int, int], log: str, *, lost: bool = False) -> Result:
    hosts = ("algo-1", "algo-2")
    return Result(
        Case("stands still", pause=9, lost=lost), dict.fromkeys(hosts, 9.0), dict(zip(hosts, codes, strict=True)), log
    )


@pytest.mark.parametrize(
    ("of", "right"),
    [
        (result((0, 0), ""), True),
        (result((0, 0), WARNED + AGAIN), True),
        (result((0, 0), WARNED), False),
        (result((1, 1), WARNED + LOST), False),
        (result((1, 1), WARNED + LOST, lost=True), True),
        (result((0, 0), WARNED + AGAIN, lost=True), False),
        (result((1, 1), WARNED, lost=True), False),
    ],
)
def test_what_is_right(of: Result, right: bool) -> None:
    assert of.right is right


def test_the_page() -> None:
    page = render("today", "where", [result((0, 0), WARNED + AGAIN), result((1, 1), LOST)])
    assert "| algo-2 | stands still | 9.0 | 9.0 | 1 | 1 | 0, 0 |" in page
    assert "| algo-2 | stands still | 9.0 | 9.0 | 0 | 0 | 1, 1 WRONG |" in page
    assert page.endswith("1 of 2 jobs did not end as they should.")
