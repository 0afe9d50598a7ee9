"""Where the commands of build.py print: results to stdout; progress to stderr, bars on a terminal, lines in a log."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

note = Console(stderr=True, highlight=False)
"""Progress and errors."""
_WIDE = 1000
result = Console(
    highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _WIDE
)
"""A command's results. In a pipe lines are up to 1000 columns wide, so that no table wraps a path."""


def is_watched() -> bool:
    """Whether stdout and stderr are both a terminal, and one that can move its cursor."""
    return note.is_interactive and sys.stdout.isatty() and sys.stderr.isatty()


def say(text: str) -> None:
    """A line of progress."""
    note.print(escape(text), soft_wrap=True)


def heading(console: Console, text: str) -> None:
    """A line above a command's next part; in a log without a rule as wide as the console."""
    if console.is_terminal:
        console.rule(escape(text))
    else:
        console.print(f"--- {text}", markup=False)


def print_json(document: Any) -> None:
    """Prints the one document of a command with --json: an array if it covers several images, else an object."""
    result.print_json(json.dumps(document))


@contextmanager
def doing(what: str) -> Iterator[Callable[[str], None]]:
    """Shows a long task's progress: a spinner on a terminal, lines in a log. Yields a function that takes each step."""
    if note.is_terminal:
        with note.status(escape(what)) as status:
            yield lambda step: status.update(escape(step))
    else:
        say(what)
        yield say


def progress_bar(console: Console, *, transient: bool = False, disable: bool = False) -> Progress:
    """A bar without tasks. transient: it disappears at its end; disable: it is not shown, but still prints lines."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=transient, disable=disable)


Show = Callable[[str, int, int], None]
"""Called with a file's name, the bytes received so far, and its size in bytes (0 if unknown)."""


@contextmanager
def showing_bytes(console: Console) -> Iterator[Show]:
    """A bar in megabytes for each file while it is downloaded; nothing in a log."""
    bar = progress_bar(console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, TaskID] = {}

    def show(name: str, done: int, total: int) -> None:
        if name not in tasks:
            bar.start()
            tasks[name] = bar.add_task(escape(f"{name}, MB"), total=total // 1_000_000 or None)
        bar.update(tasks[name], completed=done // 1_000_000)
        if done == total:
            bar.remove_task(tasks.pop(name))
            bar.stop()

    try:
        yield show
    finally:
        bar.stop()
