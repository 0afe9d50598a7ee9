"""What a push and a promotion show in a log, where there are no bars."""

import io
import re
import time
from collections.abc import Callable

from rich.console import Console

from berth.ecr.display import SILENCE_S, showing_blobs, showing_layers
from berth.ecr.push.events import LayerState
from berth.ecr.registry.manifest import Descriptor
from berth.ecr.repositories.destination import Destination

PLACE = Destination("127.0.0.1:5000", "berth-serve")
LARGE, SMALL = 500_000_000, 2_000_000


def log() -> Console:
    return Console(file=io.StringIO(), width=80)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.strip().removeprefix(f"{PLACE} ") for line in console.file.getvalue().splitlines()]


def test_a_large_layer_is_said_when_it_begins_and_each_once_when_it_ends() -> None:
    console = log()
    with showing_layers(console, {"a": "pytorch", "b": "openmpi"}) as show:
        for current in (1, LARGE // 2, LARGE):
            show(PLACE, LayerState("a", current, LARGE))
        show(PLACE, LayerState("b", 1, SMALL))
        show(PLACE, LayerState("b", 1, SMALL, waits=True))
        show(PLACE, LayerState("b", SMALL, SMALL, "sent"))
        show(PLACE, LayerState("c", end="there"))
        show(PLACE, LayerState("d", 0, LARGE, "mounted"))
        for _ in range(2):
            show(PLACE, LayerState("a", LARGE, LARGE, "sent"))
    assert lines(console) == [
        "pytorch: begins",
        "openmpi: sent",
        "c: is there already",
        "d: taken from another repository",
        "pytorch: sent",
    ]


def test_a_blob_is_said_once_it_has_arrived_but_for_the_smallest() -> None:
    console = log()
    large, small = (Descriptor("x", f"sha256:{digit * 64}", size) for digit, size in (("1", SMALL), ("2", 1_000)))
    with showing_blobs(console) as show:
        for arrived in (1_000_000, SMALL, SMALL):
            show(large, arrived)
        show(small, small.size)
    assert lines(console) == ["sha256:111111111111: 2.0 MB copied"]


def test_a_log_hears_how_far_a_layer_is_where_nothing_else_is_said() -> None:
    console = log()
    with showing_layers(console, {"a": "pytorch"}, silence_s=0.02) as show:
        until(
            lambda: any(re.match(r"pushing; \d+ s so far", line) for line in lines(console))
        )  # before the engine says anything
        show(PLACE, LayerState("a", LARGE // 2, LARGE))
        until(lambda: any(re.match(r"pytorch 50 %; \d+ s so far", line) for line in lines(console)))
    ended = len(lines(console))
    time.sleep(0.1)
    assert len(lines(console)) == ended


def test_a_log_is_never_silent_for_ten_seconds() -> None:
    assert SILENCE_S * 6 / 5 < 10


def until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
