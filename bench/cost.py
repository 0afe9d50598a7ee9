"""How much memory and time the most expensive request bodies take, and whether /ping still answers.

Usage: python -m bench.cost --model out/model.tar.gz [--requests 300] > bench/results/DATE-cost.md

The image serves on one CPU with 2 GB: as an endpoint, as a batch transform, and with a custom handler. It gets
--requests bodies of each content type, one after the other, at its limits and one byte above. Memory is the peak of the
container's control group minus its usage before the first body. Time is the CPU time of process 1, because the time of
the model depends on its size; with a handler it is the time until the answer. A /ping per second must be answered
within one second. Exit code 1 if a body took more than 300 MB or 2 s (in a batch transform 600 MB, without a limit of
time), if a /ping was late, or if a request got no answer, 502, or, without a handler, 500. Needs the prerequisites of
bench/serve.py except for the peer's, an engine on this machine, and root.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from docker.models.containers import Container

from bench import machine, program, report
from bench.serving import sides
from bench.serving.container import running
from bench.serving.costly_bodies import CostlyBody, Room, draw
from bench.serving.load import LOST
from bench.serving.our_image import add_options, our_sides
from bench.serving.peak_memory import PeakMemory
from bench.serving.request import ask
from berth.common import engine
from berth.serve.limits import MEBIBYTE, RequestLimits
from berth.serve.questions.codecs import CODECS, CSV

MEMORY = "2g"
PING_EVERY = 1.0  # seconds
PING_WITHIN = 1.0
_ANSWER_WITHIN = 600.0
"""Seconds that a batch transform waits by default; tens of thousands of valid records take minutes."""
_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN = 20
HANDLER = """
import re, threading

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    if data[0][0] == "hold":  # this pattern blocks all threads, so the worker reads nothing for seconds
        threading.Timer(0.2, re.match, (r"(a|aa)+$", "a" * 36 + "b")).start()
        return [0.0]
    return [float(row[0]) for row in data]
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one body: megabytes; seconds, 0 for no limit. handler: seconds count until the answer, which may have
    status 500.
    """

    megabytes: int
    seconds: float
    handler: bool = False


ENDPOINT, TRANSFORM, HANDLER_BOUNDS = Bounds(300, 2.0), Bounds(600, 0.0), Bounds(300, 2.0, handler=True)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one body. pings: the seconds of each /ping during the request."""

    body: CostlyBody
    status: int
    megabytes: int
    seconds: float
    pings: tuple[float, ...]

    def fault(self, bounds: Bounds) -> str:
        """What exceeds the bounds; empty if nothing does."""
        excesses = []
        # A slow machine may answer 503 or 504.
        if self.status in (LOST, 502) or (self.status == 500 and not bounds.handler):
            excesses.append(f"status {self.status}")
        if self.megabytes > bounds.megabytes:
            excesses.append(f"{self.megabytes} MB")
        if bounds.seconds and self.seconds > bounds.seconds and not self.body.pause:
            excesses.append(f"{self.seconds:.1f} s")
        if max(self.pings, default=0.0) > PING_WITHIN:
            excesses.append(f"/ping took {max(self.pings):.1f} s")
        shown = f"{self.body.content_type}, {self.body.name}"
        return f"{', '.join(excesses)}: {shown}" if excesses else ""


@contextmanager
def pinging(port: int) -> Iterator[list[float]]:
    """The seconds of each /ping sent during the `with` block; infinite if the status is not 200."""
    stop = threading.Event()
    durations: list[float] = []

    def ping() -> None:
        while not stop.wait(PING_EVERY):
            status, seconds = timed(port, "GET", "/ping", within=10.0)
            durations.append(seconds if status == 200 else float("inf"))

    thread = threading.Thread(target=ping)
    thread.start()
    try:
        yield durations
    finally:
        stop.set()
        thread.join()


def timed(*request: Any, **options: Any) -> tuple[int, float]:
    """Status and seconds of a request; the parameters are those of `ask`."""
    began = time.monotonic()
    return ask(*request, **options)[0], time.monotonic() - began


def measure(container: Container, port: int, bodies: Sequence[CostlyBody], *, answered: bool = False) -> list[Cost]:
    """The cost of each body. answered: measure the seconds until the answer instead of process 1's CPU time."""
    container.reload()
    pid = int(container.attrs["State"]["Pid"])
    costs = []
    with closing(PeakMemory(pid)) as memory, pinging(port) as pings:
        before = memory.usage()
        for body in bodies:
            memory.reset()
            previous_peak, cpu, seen = memory.peak(), _cpu_seconds(pid), len(pings)
            options = {"content_type": body.content_type, "within": _ANSWER_WITHIN}
            status, seconds = timed(port, "POST", "/invocations", body.data, **options)
            if not answered:
                seconds = _cpu_seconds(pid) - cpu
            peak = memory.peak()
            more = peak - before if peak > previous_peak else 0  # an equal peak is an earlier body's
            time.sleep(body.pause)
            costs.append(Cost(body, status, more // 10**6, seconds, tuple(pings[seen:])))
    return costs


def _cpu_seconds(pid: int) -> float:
    """CPU seconds of a process; infinite if it has ended, for example because of a memory error."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return float("inf")
    return (int(fields[11]) + int(fields[12])) / _TICKS


def drawn(count: int, room: Room) -> list[CostlyBody]:
    """`count` bodies of each content type."""
    return [draw(content_type, room, number) for content_type in CODECS for number in range(count)]


def handler_bodies() -> list[CostlyBody]:
    """Bodies that make a handler fail with the text in its exception, and large bodies for a worker that is blocked."""
    cells = [b"a" * 20_000, b"a" * 1_000_000, b"token=" * 200_000, b"a.b@" * 200_000, b"-" * 1_000_000]
    failing = [CostlyBody(CSV, f"{cell[:6].decode()!r} ({len(cell)} bytes)", cell) for cell in cells]
    hold = CostlyBody(CSV, "blocks its worker", b"hold", pause=0.5)
    return [*failing, hold, replace(failing[1], name="1 MB for a blocked worker", pause=1.0)]


def render(costs: dict[str, list[Cost]], bounds: dict[str, Bounds]) -> list[str]:
    """A table of the costs, and a list of the bodies that exceed the bounds."""
    columns = ("served", " bodies", "content type", " 200", " 4xx", " most MB", " most s", " slowest /ping, s")
    rows = []
    for name, measured in costs.items():
        for content_type in dict.fromkeys(cost.body.content_type for cost in measured):
            these = [cost for cost in measured if cost.body.content_type == content_type]
            answered = sum(cost.status == 200 for cost in these)
            refused = sum(400 <= cost.status < 500 for cost in these)
            megabytes, seconds = max(cost.megabytes for cost in these), max(cost.seconds for cost in these)
            ping = max((ping for cost in these for ping in cost.pings), default=0.0)
            figures = (answered, refused, megabytes, f"{seconds:.2f}", f"{ping:.2f}")
            rows.append(report.row(name, len(these), content_type, *figures))
    faults = [fault for name, measured in costs.items() for cost in measured if (fault := cost.fault(bounds[name]))]
    exceeding = [f"Over the bounds: {len(faults)}.", *(f"- {fault}" for fault in faults[:_SHOWN])]
    return [*report.table(columns, rows), "", *exceeding]


def main(words: Sequence[str]) -> int:
    options = _options(words)
    cores = machine.parse_cores(options.cores)[:1]
    client = engine.connect()
    bounds = {
        "endpoint": ENDPOINT,
        "batch transform, 6 MiB": TRANSFORM,
        "batch transform, 25 MiB": TRANSFORM,
        "handler": HANDLER_BOUNDS,
    }
    costs: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
        [side] = our_sides(options, [], Path(scratch))
        handler = Path(scratch, "handler")
        (handler / "code").mkdir(parents=True)
        (handler / "code" / "inference.py").write_text(HANDLER)
        for name, limit in bounds.items():
            bodies, environment, model = _scene(name, options.requests, handler, side.model)
            changed = replace(side, model=model, environment={**side.environment, **environment})
            with running(client, changed, cores, None) as server:
                server.container.update(mem_limit=MEMORY, memswap_limit=MEMORY)
                measure(server.container, server.port, bodies[:5])  # warm up, so that memory is allocated
                costs[name] = measure(server.container, server.port, bodies, answered=limit.handler)
                print(f"{name}: {len(bodies)} bodies", file=sys.stderr)
        description = sides.describe(client, side)
    setting = f"{program.setting('cost', words, client, cores)}, {MEMORY} of memory."
    print(report.page("Cost of expensive bodies", [setting, description], *render(costs, bounds)))
    return 1 if any(cost.fault(bounds[name]) for name, measured in costs.items() for cost in measured) else 0


def _scene(name: str, count: int, handler: Path, model: Path) -> tuple[list[CostlyBody], dict[str, str], Path]:
    """The bodies, variables and model of one way to serve."""
    if name == "handler":
        return handler_bodies(), {}, handler
    if name == "endpoint":
        return drawn(count, Room(2 * MEBIBYTE, RequestLimits())), {}, model
    size = 6 if "6" in name else 25
    room = Room(size * MEBIBYTE, RequestLimits(batch=True))
    variables = {"SAGEMAKER_BATCH": "true", "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(size)}
    return drawn(max(1, count // 10), room), variables, model


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = program.make_parser("cost", __doc__)
    add_options(parser)
    parser.set_defaults(requests=300)
    return parser.parse_args(words)


if __name__ == "__main__":
    program.end_with(main)
