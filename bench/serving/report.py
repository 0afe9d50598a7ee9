"""Measurements of an inference image as Markdown."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import report
from bench.serving.figures import Agreement, ClosedFigures, SoakFigures
from bench.serving.load import Load
from bench.serving.sides import PEER


@dataclass(frozen=True, slots=True)
class Round:
    """One start of a server. memory: bytes after 100 requests; closed: concurrency → its figures; answers: those of
    the first level.
    """

    ping_s: float
    first_answer_s: float
    memory: int
    processes: int
    closed: Mapping[int, ClosedFigures]
    answers: Load


Figure = Callable[[Round], float]


@dataclass(frozen=True, slots=True)
class Column:
    """All rounds of one side. description: its versions and variables; agreement: with the peer's answers."""

    name: str
    description: str
    rounds: Sequence[Round]
    agreement: Agreement | None = None

    def median(self, figure: Figure) -> float:
        return statistics.median(map(figure, self.rounds))


def render(columns: Sequence[Column]) -> list[str]:
    """The table and remarks below it. If the peer was measured, it is the first column."""
    names = [column.name for column in columns]
    if names[0] == PEER:
        names += [f"{name} / {PEER}" for name in names[1:]]
    lines = [
        *(f"* {column.name}: {column.description}" for column in columns),
        "",
        *report.table(["clients at once", "", *names], []),
    ]
    for level in columns[0].rounds[0].closed:
        lines += [
            _row(columns, (level, "requests/s"), _at(level, lambda each: each.per_second), "{:.1f}"),
            _row(columns, ("", "p50, ms"), _at(level, lambda each: each.p50_ms), "{:,.0f}"),
            _row(columns, ("", "p99, ms"), _at(level, lambda each: each.p99_ms), "{:,.0f}"),
        ]
    lines += [
        _row(columns, ("", "memory (PSS) after 100 requests, MB"), lambda each: each.memory / 1e6, "{:,.0f}"),
        _row(columns, ("", "processes"), lambda each: each.processes, "{:,.0f}"),
        _row(columns, ("", "start to a healthy /ping, s"), lambda each: each.ping_s, "{:.1f}"),
        _row(columns, ("", "start to the first answer, s"), lambda each: each.first_answer_s, "{:.1f}"),
    ]
    return [*lines, "", *_remarks(columns)]


def render_soak(figures: SoakFigures, capacity: tuple[float, float], memory: tuple[int, int]) -> list[str]:
    """The table. capacity: requests per second in a closed loop before and after the load; memory: bytes then."""
    shares = [f"{100 * figures.per_second / each:.0f} %" if each else "–" for each in capacity]
    rows = {
        "sent": f"{figures.sent:,}",
        "answered (200)": f"{figures.answered:,}",
        "refused (503)": f"{figures.refused:,}",
        "timed out (504)": f"{figures.timed_out:,}",
        "other statuses": f"{figures.others:,}",
        "lost: no answer, or the connection broke": f"{figures.lost:,}",
        "answered per second": f"{figures.per_second:.1f}",
        "capacity before and after, requests per second": f"{capacity[0]:.1f}, {capacity[1]:.1f}",
        "answered per second, in percent of the capacity before and after": ", ".join(shares),
        "p50 of the answered requests, ms": f"{figures.p50_ms:,.0f}",
        "p99 of the answered requests, ms": f"{figures.p99_ms:,.0f}",
        "p99 of /ping, ms": f"{figures.ping_p99_ms:,.0f}",
        "/ping with another status than 200": f"{figures.pings_failed:,} of {figures.pings:,}",
        "memory (PSS) before and after, MB": f"{memory[0] / 1e6:,.0f}, {memory[1] / 1e6:,.0f}",
        "the client: share of a core, p99 of its delay, ms": (
            f"{100 * figures.client_share:.0f} %, {figures.late_p99_ms:.0f}"
        ),
    }
    return report.table(["", ""], [report.row(*figure) for figure in rows.items()])


def _at(level: int, figure: Callable[[ClosedFigures], float]) -> Figure:
    """A figure of the closed loop with `level` clients."""
    return lambda each: figure(each.closed[level])


def _row(columns: Sequence[Column], first_cells: tuple[object, str], figure: Figure, form: str) -> str:
    """Medians, with the smallest and the largest value if rounds differ, and their ratios to the peer's."""
    cells = []
    for column in columns:
        values = [figure(each) for each in column.rounds]
        median, least, most = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
        cells.append(median if least == most else f"{median} ({least}–{most})")
    if columns[0].name == PEER:
        peer = columns[0].median(figure)
        cells += [f"{column.median(figure) / peer:.2f}" if peer else "–" for column in columns[1:]]
    return report.row(*first_cells, *cells)


def _remarks(columns: Sequence[Column]) -> list[str]:
    """How many answers agree, how many requests failed, and the client's share of a core."""
    lines = []
    closed = {column.name: [each for part in column.rounds for each in part.closed.values()] for column in columns}
    for column in columns:
        if same := column.agreement:
            lines.append(
                f"{column.name} and the peer give the same span to {same.spans} of {same.requests} requests, "
                f"the same text to {same.texts}."
            )
        if failed := sum(figures.failed for figures in closed[column.name]):
            lines.append(f"{column.name} did not answer {failed} requests with 200: its rates do not count them.")
    shares = [100 * figures.client_share for each in closed.values() for figures in each]
    lines.append(
        f"The client used the same cores: {statistics.median(shares):.1f} % of one core, {max(shares):.1f} % at most."
    )
    return lines
