"""The one shape of progress bar that a terminal shows: what runs, how much of it, n of m, and for how long."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


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
