"""Raises a message of 100 KB with many lines, one of which looks like the first line of a traceback."""

ROWS = 6000


def check(labels: list[int]) -> None:
    wrong = [f"row {row}: label {label}" for row, label in enumerate(labels) if label > 4]
    if wrong:
        report = "\n".join(wrong)
        raise ValueError(f"{len(wrong)} rows are wrong:\nTraceback (most recent call last):\n{report}\nKeyError: 'row'")


check([7] * ROWS)
