"""The day of a software set: what was not asked for is resolved as of it, so that nothing that was asked for may have
come out later. Pure.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from berth.images.combinations import Known

MARGIN_DAYS = 30
"""How many days after the newest version that was asked for all else is resolved as of: what came out soon after it was
made for it, and what came out long after it may have dropped what it calls.
"""


def day_of(newest: str, today: datetime.date) -> str:
    """The day as of which all else is resolved, by the newest day of what was asked for; empty for today's."""
    if not newest:
        return ""
    day = datetime.date.fromisoformat(newest) + datetime.timedelta(days=MARGIN_DAYS)
    return day.isoformat() if day < today else ""


def newest_of(versions: Mapping[str, str], known: Known) -> tuple[str, str]:
    """The day of the newest of these versions, and its project; both empty where there is none."""
    return max(((known.row(name, version).day, name) for name, version in versions.items()), default=("", ""))


def day_faults(versions: Mapping[str, str], bounds: Sequence[str], day: str, known: Known) -> list[str]:
    """The sentence that says what of this came out after the day only, and which day would do; empty where all is of
    it. bounds: requirements and constraints that leave the version open.
    """
    late = [*_late_versions(versions, day, known), *_late_bounds(bounds, day, known)] if day else []
    if not late:
        return []
    said = " and ".join(f"{what} came out on {came}" for came, what in late)
    return [
        f"{said}, and all else would be as of {day}: give --day {max(came for came, _ in late)} or a later one, or "
        "choose older versions."
    ]


def _late_versions(versions: Mapping[str, str], day: str, known: Known) -> Iterator[tuple[str, str]]:
    for name, version in versions.items():
        if (came := known.row(name, version).day) > day:
            yield came, f"{name} {version}"


def _late_bounds(bounds: Sequence[str], day: str, known: Known) -> Iterator[tuple[str, str]]:
    """The bounds that nothing meets that came out by the day, each with the day and the name of the first that does."""
    for text in bounds:
        asked = Requirement(text)
        rows = known.releases.get(canonicalize_name(asked.name), {})
        within = [(row.day, Version(each)) for each, row in rows.items() if asked.specifier.contains(each)]
        if within and all(came > day for came, _ in within):
            came, first = min(within)
            yield came, f"the first {asked.name}{asked.specifier} ({first})"
