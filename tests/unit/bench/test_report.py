"""Markdown of measurements that are written down."""

from collections.abc import Sequence

from bench.machine import MatrixProduct
from bench.serving.figures import Agreement, ClosedFigures, SoakFigures
from bench.serving.model import Work
from bench.serving.report import Column, Comparison, Round, render, render_soak

WORK = Work(requests=10, windows=12, tokens=2000, flops=2000 * 25_000_000)


def column(name: str, rates: Sequence[float], agreement: Agreement | None = None, failed: int = 0) -> Column:
    """A round for each rate: of 1 client so many requests/s, of 8 twice as many."""
    rounds = [
        Round(
            ping_s=rate / 2,
            first_answer_s=rate / 2 + 0.1,
            memory=int(1e8 * rate),
            processes=5,
            closed={
                at: ClosedFigures(rate * times, 10 * rate, 100 * rate, failed, 0.012) for at, times in ((1, 1), (8, 2))
            },
        )
        for rate in rates
    ]
    return Column(name, f"what {name} is", rounds, agreement)


def comparison(*columns: Column) -> Comparison:
    products = [MatrixProduct(1024, 2e11), MatrixProduct(1024, 1e11), MatrixProduct(512, 3e11)]
    return Comparison("Title", "setting", WORK, products, columns)


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def test_columns_have_medians_and_ratios_to_the_peer() -> None:
    text = render(comparison(column("peer", [10, 14, 12]), column("ours", [20, 21, 24], Agreement(10, 9, 10))))
    table = rows(text)
    assert table[0] == ["clients at once", "", "peer", "ours", "ours / peer"]
    assert len({len(row) for row in table}) == 1
    assert table[2] == ["1", "requests/s", "12.0 (10.0–14.0)", "21.0 (20.0–24.0)", "1.75"]
    assert table[3] == ["", "tokens/s", "2,400 (2,000–2,800)", "4,200 (4,000–4,800)", "1.75"]
    assert table[6] == ["8", "requests/s", "24.0 (20.0–28.0)", "42.0 (40.0–48.0)", "1.75"]
    assert ["", "p99, ms", "1,200 (1,000–1,400)", "2,100 (2,000–2,400)", "1.75"] in table
    assert ["", "memory (PSS) after 100 requests, MB", "1,200 (1,000–1,400)", "2,100 (2,000–2,400)", "1.75"] in table
    assert ["", "processes", "5", "5", "1.00"] in table
    assert "* peer: what peer is\n* ours: what ours is\n" in text
    assert "setting, 200 tokens each on average in 1.20 windows" in text
    assert "ours and the peer give the same span to 9 of 10 requests, the same text to 10." in text


def test_the_machines_matrix_product_stands_next_to_what_is_reached() -> None:
    text = render(comparison(column("peer", [10]), column("ours", [20])))
    assert "`torch.mm`, 512 or 1024 rows and columns): 200 GFLOP/s (100–300)." in text
    assert "At 25.0 MFLOP a token" in text
    assert "that is 8,000 tokens/s." in text
    assert "each where it is fastest: peer 50 %, ours 100 %." in text


def test_failures_and_the_clients_share_are_said() -> None:
    text = render(comparison(column("peer", [10]), column("ours", [20, 22], failed=3)))
    assert "ours did not answer 12 requests with 200" in text
    assert "peer did not answer" not in text
    assert "The client, on the same cores, took 1.2 % of one, 1.2 % at most." in text


def test_a_soak_says_every_outcome() -> None:
    figures = SoakFigures(
        sent=9000, answered=6000, refused=2000, timed_out=900, lost=60, others=40, per_second=20.0,
        p50_ms=30_000.0, p99_ms=59_000.0, ping_p99_ms=12.4, pings=2400, pings_failed=1,
        late_p99_ms=8.0, client_share=0.05,
    )  # fmt: skip
    text = render_soak("Title", ["where", "what"], figures, (20.5, 19.0), (300_000_000, 310_000_000))
    assert text.startswith("# Title\n\nwhere\n\nwhat\n\n| | |\n")
    table = dict(rows(text)[2:])
    assert table["sent"] == "9,000"
    assert [table[name] for name in table if "(" in name][:3] == ["6,000", "2,000", "900"]
    assert table["lost: no answer, or the connection broke"] == "60"
    assert table["answered, of the capacity before and after"] == "98 %, 105 %"
    assert table["/ping that was not 200"] == "1 of 2,400"
    assert table["memory (PSS) before and after, MB"] == "300, 310"
