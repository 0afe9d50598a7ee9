"""The table at the end of a job's log: seconds per phase, cost, speed, and scores.

    summary  training:       310.5 s
    summary  cost:            0.12 dollars (2 hosts, 0.57 an hour each)

Each line begins with `summary`, because other lines may come between them in the log. Pure.
"""

from collections.abc import Mapping
from typing import Any

from berth.qa.faults import counted
from berth.runtime.rank import Rank
from berth.train.run_qa.reporting.phases import PHASES

# Name in metrics.json → name in the table, decimals, unit.
_FIGURES = {
    "examples_per_second": ("examples/s", 1, ""),
    "tokens_per_second": ("tokens/s", 0, ""),
    "padding_percent": ("padding", 1, " %"),
    "eval_exact_match": ("exact match", 2, ""),
    "eval_f1": ("F1", 2, ""),
}


def cost(seconds: float, hosts: int, price: float | None) -> dict[str, float]:
    """The cost of all hosts in dollars. `price`: of one host per hour; None: unknown, then the result is empty."""
    return {} if price is None else {"cost_dollars": round(seconds / 3600 * hosts * price, 4)}


def table(metrics: Mapping[str, Any], rank: Rank, price: float | None) -> list[str]:
    """The lines of the table, from metrics.json; values that the job did not measure are omitted."""
    seconds = metrics["seconds"]
    rows = [(phase, f"{seconds[phase]:.1f}", " s") for phase in PHASES]
    rows.append(("total", f"{sum(seconds.values()):.1f}", " s"))
    if "cost_dollars" in metrics:
        what = f" dollars ({counted(rank.hosts, 'host')}, {price:g} an hour each)"
        rows.append(("cost", f"{metrics['cost_dollars']:.2f}", what))
    rows += [
        (name, f"{metrics[key]:.{decimals}f}", unit)
        for key, (name, decimals, unit) in _FIGURES.items()
        if key in metrics
    ]
    return [f"summary  {name + ':':<12}{value:>10}{unit}" for name, value, unit in rows]
