"""Words of sentences: a noun with its number, the first of many names."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def few(names: Sequence[str]) -> str:
    """`a, b, c`; of more than five names the first three and the last: `a, b, c, …, z`."""
    return ", ".join(names if len(names) < 6 else [*names[:3], "…", names[-1]])
