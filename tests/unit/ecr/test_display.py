"""What a push and a promotion show in a log, where there are no bars."""

import io

from rich.console import Console

from berth.ecr.destination import Destination
from berth.ecr.display import showing_blobs, showing_layers
from berth.ecr.registry.manifest import Descriptor
from berth.ecr.stream import LayerState

PLACE = Destination("127.0.0.1:5000", "berth-serve")
LARGE, SMALL = 500_000_000, 2_000_000


def log() -> Console:
    return Console(file=io.StringIO(), width=80)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.strip().removeprefix(f"{PLACE} ") for line in console.file.getvalue().splitlines()]


def test_a_large_layer_is_said_when_it_begins_and_each_once_when_it_ends() -> None:
    console = log()
    with showing_layers(console) as show:
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
        "a: begins, 500.0 MB unpacked",
        "b: sent, 2.0 MB unpacked",
        "c: is there already",
        "d: taken from another repository",
        "a: sent, 500.0 MB unpacked",
    ]


def test_a_blob_is_said_once_it_has_arrived_but_for_the_smallest() -> None:
    console = log()
    large, small = (Descriptor("x", f"sha256:{digit * 64}", size) for digit, size in (("1", SMALL), ("2", 1_000)))
    with showing_blobs(console) as show:
        for arrived in (1_000_000, SMALL, SMALL):
            show(large, arrived)
        show(small, small.size)
    assert lines(console) == ["sha256:111111111111: 2.0 MB copied"]
