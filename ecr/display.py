"""What a push shows while it runs: a bar for each layer on a terminal, a line for each layer in a log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from berth.ecr.destination import Destination
from berth.ecr.promote import Progress as Copying
from berth.ecr.registry.manifest import Descriptor
from berth.ecr.stream import LayerState

Show = Callable[[Destination, LayerState], None]

_SMALL, _LARGE = 50_000, 100_000_000
"""Bytes of a blob that is worth a line, and of a layer that takes so long that a log says when it begins."""
_ENDS = {"sent": "sent", "there": "is there already", "mounted": "taken from another repository"}


@contextmanager
def showing_layers(console: Console) -> Iterator[Show]:
    """Bytes on the bars are those of the plain layers, which the engine counts; what travels is compressed."""
    bars = _bars(console)
    tasks: dict[tuple[Destination, str], TaskID] = {}
    ended: set[tuple[Destination, str]] = set()
    lock = Lock()

    def show(place: Destination, state: LayerState) -> None:
        key = (place, state.layer)
        with lock:
            if state.end:
                if key in tasks:
                    bars.remove_task(tasks.pop(key))
                if key not in ended:
                    ended.add(key)
                    bars.print(_line(place, state, _ENDS[state.end], sized=state.end == "sent"), soft_wrap=True)
                return
            if key not in tasks:
                tasks[key] = bars.add_task(escape(f"{place} {state.layer}"), total=state.total or None)
                if bars.disable and state.total > _LARGE:
                    bars.print(_line(place, state, "begins", sized=True), soft_wrap=True)
            if state.waits:  # nor is there a speed
                bars.reset(tasks[key])
                return
            bars.update(tasks[key], completed=min(state.current, state.total or state.current))

    with bars:
        yield show


def _line(place: Destination, state: LayerState, what: str, *, sized: bool) -> str:
    size = f", {state.total / 1e6:.1f} MB unpacked" if sized and state.total else ""
    return escape(f"  {place} {state.layer}: {what}{size}")


@contextmanager
def showing_blobs(console: Console) -> Iterator[Copying]:
    """The same for a copy between registries: a bar for each blob that is sent, a line for each that has arrived."""
    bars = _bars(console)
    tasks: dict[str, TaskID] = {}
    lock = Lock()

    def show(blob: Descriptor, arrived: int) -> None:
        with lock:
            if blob.digest not in tasks:
                tasks[blob.digest] = bars.add_task(blob.digest[:19], total=blob.size)
            bars.update(tasks[blob.digest], completed=arrived)
            if arrived == blob.size and bars.tasks[tasks[blob.digest]].visible:
                bars.update(tasks[blob.digest], visible=False)
                if blob.size < _SMALL:
                    return
                bars.print(f"  {blob.digest[:19]}: {blob.size / 1e6:.1f} MB copied", soft_wrap=True)

    with bars:
        yield show


def _bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
