"""The bounds of the cost of expensive bodies."""

import pytest

from bench.cost import ENDPOINT, HANDLER_BOUNDS, TRANSFORM, Bounds, Cost
from bench.serving.costly_bodies import CostlyBody
from berth.serve.questions.codecs import CSV

BODY = CostlyBody(CSV, "lines of 'x'", b"x")


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
