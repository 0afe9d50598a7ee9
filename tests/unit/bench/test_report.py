"""Markdown of given measurements."""

from collections.abc import Sequence

from bench.serving.figures import Agreement, ClosedFigures, SoakFigures
from bench.serving.load import Load
from bench.serving.report import Column, Round, render, render_soak


def column(name: str, rates: Sequence[float], agreement: Agreement | None = None, failed: int = 0) -> Column:
    """A round per rate: one client has this rate, 8 clients have twice as much."""
    rounds = [
        Round(
            ping_s=rate / 2,
            first_answer_s=rate / 2 + 0.1,
            memory=int(1e8 * rate),
            processes=5,
            closed={
                at: ClosedFigures(rate * times, 10 * rate, 100 * rate, failed, 0.012) for at, times in ((1, 1), (8, 2))
            },
            answers=Load((), 1.0, 0.0),
        )
        for rate in rates
    ]
    return Column(name, f"description of {name}", rounds, agreement)


def cells(lines: Sequence[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_columns_have_medians_and_ratios_to_the_peer() -> None:
    lines = render([column("peer", [10, 14, 12]), column("ours", [20, 21, 24], Agreement(10, 9, 10))])
    table = cells(lines)
    assert table[0] == ["clients at once", "", "peer", "ours", "ours / peer"]
    assert len({len(row) for row in table}) == 1
    assert table[2] == ["1", "requests/s", "12.0 (10.0–14.0)", "21.0 (20.0–24.0)", "1.75"]
    assert table[5] == ["8", "requests/s", "24.0 (20.0–28.0)", "42.0 (40.0–48.0)", "1.75"]
    assert ["", "p99, ms", "1,200 (1,000–1,400)", "2,100 (2,000–2,400)", "1.75"] in table
    assert ["", "memory (PSS) after 100 requests, MB", "1,200 (1,000–1,400)", "2,100 (2,000–2,400)", "1.75"] in table
    assert ["", "processes", "5", "5", "1.00"] in table
    assert lines[:2] == ["* peer: description of peer", "* ours: description of ours"]
    assert "ours and the peer give the same span to 9 of 10 requests, the same text to 10." in lines


def test_remarks_report_failures_and_the_clients_share() -> None:
    text = "\n".join(render([column("peer", [10]), column("ours", [20, 22], failed=3)]))
    assert "ours did not answer 12 requests with 200" in text
    assert "peer did not answer" not in text
    assert "The client used the same cores: 1.2 % of one core, 1.2 % at most." in text


def test_soak_table_has_every_outcome() -> None:
    figures = SoakFigures(
        sent=9000, answered=6000, refused=2000, timed_out=900, lost=60, others=40, per_second=20.0,
        p50_ms=30_000.0, p99_ms=59_000.0, ping_p99_ms=12.4, pings=2400, pings_failed=1,
        late_p99_ms=8.0, client_share=0.05,
    )  # fmt: skip
    table = dict(cells(render_soak(figures, (20.5, 19.0), (300_000_000, 310_000_000)))[2:])
    assert table["sent"] == "9,000"
    assert [table[name] for name in table if "(" in name][:3] == ["6,000", "2,000", "900"]
    assert table["lost: no answer, or the connection broke"] == "60"
    assert table["answered per second, in percent of the capacity before and after"] == "98 %, 105 %"
    assert table["/ping with another status than 200"] == "1 of 2,400"
    assert table["memory (PSS) before and after, MB"] == "300, 310"
