"""Lines that a push and a promotion print to a log, where no bars are shown."""

import io
import re
import time

from rich.console import Console

from berth.ecr.display import SILENCE_S, showing_layers
from berth.ecr.push.events import LayerState
from tests.waiting import until

PLACE = "127.0.0.1:5000/berth-serve"
LARGE, SMALL = 500_000_000, 2_000_000


def log() -> Console:
    return Console(file=io.StringIO(), width=80)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.strip().removeprefix(f"{PLACE} ") for line in console.file.getvalue().splitlines()]


def test_log_has_one_line_per_finished_layer_and_one_when_a_large_layer_begins() -> None:
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


def test_log_gets_progress_if_no_other_line_was_printed() -> None:
    console = log()
    with showing_layers(console, {"a": "pytorch"}, silence_s=0.02) as show:
        # Also before the first event.
        until(lambda: any(re.match(r"waiting; \d+ s so far", line) for line in lines(console)))
        show(PLACE, LayerState("a", LARGE // 2, LARGE))
        until(lambda: any(re.match(r"pytorch 50 %; \d+ s so far", line) for line in lines(console)))
    line_count = len(lines(console))
    time.sleep(0.1)
    assert len(lines(console)) == line_count


def test_log_gets_a_line_at_least_every_ten_seconds() -> None:
    assert SILENCE_S * 6 / 5 < 10
