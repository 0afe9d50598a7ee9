"""The one shape of progress bar that a terminal shows: what runs, how much of it, n of m, and for how long."""

from collections.abc import Iterator
from contextlib import contextmanager

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

from berth.images.files import Wanted
from berth.images.sources import Show


def progress_bar(console: Console, *, transient: bool = False, disable: bool = False) -> Progress:
    """A bar without tasks; `transient` removes it at its end, `disable` shows none but still prints."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=transient, disable=disable)


@contextmanager
def showing_bytes(console: Console) -> Iterator[Show]:
    """A bar for each file that is fetched, in megabytes, only while it is; a log sees what is said of it instead."""
    bar = progress_bar(console, transient=True, disable=not console.is_terminal)
    tasks: dict[str, TaskID] = {}

    def show(want: Wanted, done: int, total: int) -> None:
        if want.name not in tasks:
            bar.start()
            tasks[want.name] = bar.add_task(escape(f"{want.name}, MB"), total=total // 1_000_000 or None)
        bar.update(tasks[want.name], completed=done // 1_000_000)
        if done == total:
            bar.remove_task(tasks.pop(want.name))
            bar.stop()

    try:
        yield show
    finally:
        bar.stop()
