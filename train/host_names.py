"""Lists of hosts as a person reads them: by number, and folded, for a job may have a hundred. Pure."""

import re
import string
from collections.abc import Iterable

_MOST_PARTS = 6
_LEAST_RUN = 3


def by_number(host: str) -> list[str | int]:
    """Sorts algo-2 before algo-10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", host)]


def listed(hosts: Iterable[str]) -> str:
    """`algo-1, algo-3 to algo-40`; of many that don't follow each other the first ones, and how many more."""
    runs: list[list[str]] = []
    for host in sorted(hosts, key=by_number):
        if runs and _follows(runs[-1][-1], host):
            runs[-1].append(host)
        else:
            runs.append([host])
    parts: list[list[str]] = []
    for run in runs:
        parts += [run] if len(run) >= _LEAST_RUN else [[host] for host in run]
    shown = [part[0] if len(part) == 1 else f"{part[0]} to {part[-1]}" for part in parts[:_MOST_PARTS]]
    more = sum(len(part) for part in parts[_MOST_PARTS:])
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _follows(host: str, other: str) -> bool:
    """Whether `other` has the next number, at the end of an equal name."""
    name = host.rstrip(string.digits)
    number = host[len(name) :]
    return bool(number) and other == f"{name}{int(number) + 1}"
