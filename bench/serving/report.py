"""A measurement as Markdown: medians of the rounds, and ours against the peer's."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.machine import MatrixProduct
from bench.serving.figures import Agreement, ClosedFigures, SoakFigures
from bench.serving.model import Work
from bench.serving.sides import PEER


@dataclass(frozen=True, slots=True)
class Round:
    """One start of a server. memory: bytes after 100 requests; closed: by concurrency."""

    ping_s: float
    first_answer_s: float
    memory: int
    processes: int
    closed: Mapping[int, ClosedFigures]


Figure = Callable[[Round], float]


@dataclass(frozen=True, slots=True)
class Column:
    """All rounds of one side. what: its versions and variables; agreement: of its answers with the peer's."""

    name: str
    what: str
    rounds: Sequence[Round]
    agreement: Agreement | None = None

    def median(self, figure: Figure) -> float:
        return statistics.median(map(figure, self.rounds))

    def best_per_second(self) -> float:
        """Requests a second at the concurrency where they are most."""
        return max(self.median(_at(level, _per_second)) for level in self.rounds[0].closed)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A whole run. title, setting: its first lines; products: the machine's, one a round; columns: the peer first."""

    title: str
    setting: str
    work: Work
    products: Sequence[MatrixProduct]
    columns: Sequence[Column]


def render(run: Comparison) -> str:
    """The file of bench/results."""
    columns, work = run.columns, run.work
    names = [column.name for column in columns]
    if names[0] == PEER:
        names += [f"{name} / {PEER}" for name in names[1:]]
    lines = [
        f"# {run.title}\n",
        f"{run.setting}, {work.tokens_per_request:.0f} tokens each on average in {work.windows / work.requests:.2f} "
        f"windows, padding aside; rounds in turn: {len(run.products)}; medians, in brackets the least and the most.\n",
        *(f"* {column.name}: {column.what}" for column in columns),
        f"\n| clients at once | | {' | '.join(names)} |",
        "|---" * (2 + len(names)) + "|",
    ]
    for level in columns[0].rounds[0].closed:
        lines += [
            _row(columns, f"{level} | requests/s", _at(level, _per_second), "{:.1f}"),
            _row(columns, "| tokens/s", _at(level, lambda each: work.tokens_per_request * each.per_second), "{:,.0f}"),
            _row(columns, "| p50, ms", _at(level, lambda each: each.p50_ms), "{:,.0f}"),
            _row(columns, "| p99, ms", _at(level, lambda each: each.p99_ms), "{:,.0f}"),
        ]
    lines += [
        _row(columns, "| memory (PSS) after 100 requests, MB", lambda each: each.memory / 1e6, "{:,.0f}"),
        _row(columns, "| processes", lambda each: each.processes, "{:,.0f}"),
        _row(columns, "| start to a healthy /ping, s", lambda each: each.ping_s, "{:.1f}"),
        _row(columns, "| start to the first answer, s", lambda each: each.first_answer_s, "{:.1f}"),
    ]
    return "\n".join([*lines, "", *_matrix_product(run), "", *_remarks(columns)]) + "\n"


def render_soak(
    title: str, setting: Sequence[str], figures: SoakFigures, capacity: tuple[float, float], memory: tuple[int, int]
) -> str:
    """capacity: requests per second in a closed loop, before and after the load; memory: bytes, then as well."""
    shares = [f"{100 * figures.per_second / each:.0f} %" if each else "–" for each in capacity]
    rows = {
        "sent": f"{figures.sent:,}",
        "answered (200)": f"{figures.answered:,}",
        "refused (503)": f"{figures.refused:,}",
        "timed out (504)": f"{figures.timed_out:,}",
        "other statuses": f"{figures.others:,}",
        "lost: no answer, or the connection broke": f"{figures.lost:,}",
        "answered a second": f"{figures.per_second:.1f}",
        "capacity before and after, requests a second": f"{capacity[0]:.1f}, {capacity[1]:.1f}",
        "answered, of the capacity before and after": ", ".join(shares),
        "p50 of what was answered, ms": f"{figures.p50_ms:,.0f}",
        "p99 of what was answered, ms": f"{figures.p99_ms:,.0f}",
        "p99 of /ping, ms": f"{figures.ping_p99_ms:,.0f}",
        "/ping that was not 200": f"{figures.pings_failed:,} of {figures.pings:,}",
        "memory (PSS) before and after, MB": f"{memory[0] / 1e6:,.0f}, {memory[1] / 1e6:,.0f}",
        "the client: share of a core, p99 of being late, ms": (
            f"{100 * figures.client_share:.0f} %, {figures.late_p99_ms:.0f}"
        ),
    }
    table = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n\n".join([f"# {title}", *setting, "\n".join(table)]) + "\n"


def _at(level: int, figure: Callable[[ClosedFigures], float]) -> Figure:
    """A figure of the closed loop with so many clients."""
    return lambda each: figure(each.closed[level])


def _per_second(figures: ClosedFigures) -> float:
    return figures.per_second


def _row(columns: Sequence[Column], name: str, figure: Figure, form: str) -> str:
    """Medians, with the least and the most where rounds differ, and their ratios to the peer's."""
    cells = []
    for column in columns:
        values = [figure(each) for each in column.rounds]
        median, least, most = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
        cells.append(median if least == most else f"{median} ({least}–{most})")
    if columns[0].name == PEER:
        peer = columns[0].median(figure)
        cells += [f"{column.median(figure) / peer:.2f}" if peer else "–" for column in columns[1:]]
    return f"| {name} | {' | '.join(cells)} |"


def _matrix_product(run: Comparison) -> list[str]:
    """How near the columns come to what the machine can do."""
    work, gflops = run.work, [product.flops / 1e9 for product in run.products]
    sizes = sorted({product.size for product in run.products})
    possible = 1e9 * statistics.median(gflops) / work.flops_per_token
    reached = ", ".join(
        f"{column.name} {100 * column.best_per_second() * work.tokens_per_request / possible:.0f} %"
        for column in run.columns
    )
    return [
        f"The machine's own product of fp32 matrices, at its fastest (`torch.mm`, {' or '.join(map(str, sizes))} rows "
        f"and columns): {statistics.median(gflops):,.0f} GFLOP/s ({min(gflops):,.0f}–{max(gflops):,.0f}).",
        f"At {work.flops_per_token / 1e6:.1f} MFLOP a token, as torch counts them for this model and these windows, "
        f"that is {possible:,.0f} tokens/s.",
        f"Of these the columns reach, each where it is fastest: {reached}.",
    ]


def _remarks(columns: Sequence[Column]) -> list[str]:
    """Answers, failures, and what the client took."""
    lines = []
    closed = {column.name: [each for part in column.rounds for each in part.closed.values()] for column in columns}
    for column in columns:
        if same := column.agreement:
            lines.append(
                f"{column.name} and the peer give the same span to {same.spans} of {same.asked} requests, "
                f"the same text to {same.texts}."
            )
        if failed := sum(figures.failed for figures in closed[column.name]):
            lines.append(f"{column.name} did not answer {failed} requests with 200: its rates leave them out.")
    shares = [100 * figures.client_share for each in closed.values() for figures in each]
    lines.append(
        f"The client, on the same cores, took {statistics.median(shares):.1f} % of one, {max(shares):.1f} % at most."
    )
    return lines
