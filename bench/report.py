"""Results as Markdown."""

import time
from collections.abc import Iterable, Sequence


def row(*cells: object) -> str:
    """A row of a table; bars inside cells are escaped."""
    return f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def table(columns: Sequence[object], rows: Iterable[str]) -> list[str]:
    """The lines of a table. A column whose name begins with a space contains numbers and is aligned to the right."""
    lines = ["---:" if str(column).startswith(" ") else "---" for column in columns]
    return [row(*(str(column).strip() for column in columns)), f"|{'|'.join(lines)}|", *rows]


def page(title: str, setting: Sequence[str], *lines: str) -> str:
    """A page of results: a title with the date, paragraphs on how it was measured, then the lines."""
    return "\n".join([f"# {title}, {time.strftime('%Y-%m-%d')}", "", *setting, "", *lines])
