"""Expensive bodies, and the bounds of their cost."""

from pathlib import Path

import pytest

from bench.cost import ENDPOINT, HANDLER_BOUNDS, TRANSFORM, Bounds, Cost
from bench.serving.costly_bodies import CostlyBody, Room, draw
from bench.serving.peak_memory import files
from berth.serve.limits import RequestLimits
from berth.serve.questions.codecs import CODECS, CSV

BODY = CostlyBody(CSV, "lines of 'x'", b"x")


@pytest.mark.parametrize("content_type", CODECS)
def test_bodies_are_reproducible_and_fill_the_limits(content_type: str) -> None:
    room = Room(20_000, RequestLimits(tokens=320))
    bodies = [draw(content_type, room, number) for number in range(200)]
    assert bodies == [draw(content_type, room, number) for number in range(200)]
    sizes = [len(body.data) for body in bodies]
    assert max(sizes) == 20_001
    assert sizes.count(20_000) > 20
    assert len({body.data for body in bodies}) > 100


@pytest.mark.parametrize(
    ("cost", "bounds", "fault"),
    [
        (Cost(BODY, 200, 300, 2.0, (0.9,)), ENDPOINT, ""),
        (Cost(BODY, 413, 0, 0.0, ()), ENDPOINT, ""),
        (Cost(BODY, 200, 301, 2.1, ()), ENDPOINT, "301 MB, 2.1 s"),
        (Cost(BODY, 200, 500, 30.0, (1.5,)), TRANSFORM, "/ping took 1.5 s"),
        (Cost(BODY, 503, 0, 0.0, ()), ENDPOINT, ""),
        (Cost(BODY, 500, 0, 0.0, ()), ENDPOINT, "status 500"),
        (Cost(BODY, 500, 0, 0.0, ()), HANDLER_BOUNDS, ""),
        (Cost(BODY, 0, 0, float("inf"), (float("inf"),)), ENDPOINT, "status 0, inf s, /ping took inf s"),
    ],
)
def test_costs_above_bounds_are_faults(cost: Cost, bounds: Bounds, fault: str) -> None:
    assert cost.fault(bounds) == (f"{fault}: text/csv, lines of 'x'" if fault else "")


@pytest.mark.parametrize(
    ("groups", "peak", "usage"),
    [
        (
            "5:pids:/docker/a\n4:cpu,memory:/docker/a\n0::/\n",
            "memory/docker/a/memory.max_usage_in_bytes",
            "memory/docker/a/memory.usage_in_bytes",
        ),
        (
            "0::/system.slice/docker-a.scope\n",
            "system.slice/docker-a.scope/memory.peak",
            "system.slice/docker-a.scope/memory.current",
        ),
    ],
)
def test_counter_files_of_cgroup_v1_and_v2(groups: str, peak: str, usage: str) -> None:
    root = Path("/sys/fs/cgroup")
    assert files(groups) == (root / peak, root / usage)
