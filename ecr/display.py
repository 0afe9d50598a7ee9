"""Progress of a push or a promotion: a bar for each layer on a terminal, a line for each layer in a log.

In percent, not megabytes: the engine counts uncompressed bytes, and `build.py size` gives the compressed size.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from berth.ecr.push.events import LayerState, ShowLayer

_LARGE = 100_000_000
"""Bytes: a log has a line when a larger layer begins."""
SILENCE_S = 5.0
"""A log gets a line after so many seconds without one."""
_ENDS = {"sent": "sent", "there": "is there already", "mounted": "taken from another repository"}


@contextmanager
def showing_layers(console: Console, names: Mapping[str, str], silence_s: float = SILENCE_S) -> Iterator[ShowLayer]:
    """Shows each layer's progress. names: of layers, by `LayerState.layer`; silence_s: seconds without a line after
    which a log gets the progress.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    tasks: dict[tuple[str, str], TaskID] = {}
    ended: set[tuple[str, str]] = set()
    lock = Lock()
    last_line_at = began = time.monotonic()

    def line(text: str) -> None:
        nonlocal last_line_at
        last_line_at = time.monotonic()
        bars.print(escape(f"  {text}"), soft_wrap=True)

    def show(place: str, state: LayerState) -> None:
        key, name = (place, state.layer), names.get(state.layer, state.layer)
        with lock:
            if state.end:
                if key in tasks:
                    bars.remove_task(tasks.pop(key))
                if key not in ended:
                    ended.add(key)
                    line(f"{place} {name}: {_ENDS[state.end]}")
                return
            if key not in tasks:
                tasks[key] = bars.add_task(escape(f"{place} {name}"), total=state.total or None)
                if bars.disable and state.total > _LARGE:
                    line(f"{place} {name}: begins")
            if state.waits:  # the layer is sent again from its beginning
                bars.reset(tasks[key])
                return
            bars.update(tasks[key], completed=min(state.current, state.total or state.current))

    def report() -> None:
        """Logs the progress whenever no other line was logged for `silence_s`."""
        while not over.wait(silence_s / 5):
            with lock:
                if time.monotonic() - last_line_at < silence_s:
                    continue
                running = ", ".join(f"{task.description} {task.percentage:.0f} %" for task in bars.tasks)
                line(f"{running or 'waiting'}; {time.monotonic() - began:.0f} s so far")

    over = Event()
    if bars.disable:
        Thread(target=report, daemon=True).start()
    try:
        with bars:
            yield show
    finally:
        over.set()
