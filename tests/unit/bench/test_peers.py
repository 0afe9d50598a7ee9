"""What counts as right where one host of a job hardly runs, and the page that says so."""

import pytest

from bench.peers import Case, Result, render

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
        (result((1, 1), LOST), False),
        (result((1, 1), LOST, lost=True), True),
        (result((0, 0), "", lost=True), False),
        (result((1, 1), "", lost=True), False),
    ],
)
def test_what_is_right(of: Result, right: bool) -> None:
    assert of.right is right


def test_the_page() -> None:
    page = render("today", "where", [result((0, 0), ""), result((1, 1), LOST)])
    assert "| algo-2 | stands still | 9.0 | 9.0 | 0, 0 |" in page
    assert "| algo-2 | stands still | 9.0 | 9.0 | 1, 1 WRONG |" in page
    assert page.endswith("1 of 2 jobs did not end as they should.")
