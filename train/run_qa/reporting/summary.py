"""The table at the end of a job's log: seconds per phase, speed, and scores.

    summary  training:       310.5 s
    summary  examples/s:       12.3

Each line begins with `summary`, because other lines may come between them in the log. Pure.
"""

from collections.abc import Mapping
from typing import Any

from berth.train.run_qa.reporting.phases import PHASES

# Name in metrics.json → name in the table, decimals, unit.
_FIGURES = {
    "examples_per_second": ("examples/s", 1, ""),
    "tokens_per_second": ("tokens/s", 0, ""),
    "padding_percent": ("padding", 1, " %"),
    "eval_exact_match": ("exact match", 2, ""),
    "eval_f1": ("F1", 2, ""),
}


def table(metrics: Mapping[str, Any]) -> list[str]:
    """The lines of the table, from metrics.json; values that the job did not measure are omitted."""
    seconds = metrics["seconds"]
    rows = [(phase, f"{seconds[phase]:.1f}", " s") for phase in PHASES]
    rows.append(("total", f"{sum(seconds.values()):.1f}", " s"))
    rows += [
        (name, f"{metrics[key]:.{decimals}f}", unit)
        for key, (name, decimals, unit) in _FIGURES.items()
        if key in metrics
    ]
    return [f"summary  {name + ':':<12}{value:>10}{unit}" for name, value, unit in rows]
