"""Short lists of host names: sorted by number, and cut because a job may have a hundred hosts. Pure."""

import re
from collections.abc import Iterable

_MOST_SHOWN = 6


def by_number(host: str) -> list[str | int]:
    """Sorts algo-2 before algo-10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", host)]


def listed(hosts: Iterable[str]) -> str:
    """`algo-1, algo-3`; after six hosts `and 94 more`."""
    names = sorted(hosts, key=by_number)
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
