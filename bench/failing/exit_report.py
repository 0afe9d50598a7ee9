"""Fails; then a tracker writes a report of 20 lines to stderr, and a __del__ fails as well."""

import atexit
import sys

from work import load


class Writer:
    def __init__(self) -> None:
        self.queue: list[int] | None = []

    def __del__(self) -> None:
        self.queue = None
        self.queue.append(0)


def report() -> None:
    for step in range(20):
        print(f"tracker: loss of step {step} is {1 / (step + 1):.3f}", file=sys.stderr)


writer = Writer()
atexit.register(report)
load(7)
