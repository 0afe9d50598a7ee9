"""Memory and time of costly bodies with one CPU and 2 GB: the short version of `python -m bench.cost`."""

from pathlib import Path

import pytest

from bench.cost import ENDPOINT, HANDLER, HANDLER_BOUNDS, TRANSFORM, Bounds, drawn, handler_bodies, measure
from bench.serving.costly_bodies import CostlyBody, Room, filled
from berth.serve.limits import MEBIBYTE, RequestLimits
from berth.serve.questions.codecs import CODECS, CSV, JSON_LINES
from tests.files import write_files
from tests.images.serve.conftest import Serve
from tests.images.serve.served import Served

SMALL = {"mem_limit": "2g", "memswap_limit": "2g", "nano_cpus": 1_000_000_000}
DRAWN = 4
"""Random bodies per content type."""


def many_lines(size: int) -> list[CostlyBody]:
    """Bodies of lines with one character, each of which is an invalid record."""
    return [CostlyBody(each, "lines of x", filled("x\n", size)) for each in (JSON_LINES, CSV)]


def assert_within(served: Served, bodies: list[CostlyBody], bounds: Bounds) -> None:
    measure(served.container, served.port, bodies[:1])  # the first request allocates memory that is kept
    costs = measure(served.container, served.port, bodies, answered=bounds.handler)
    for cost in costs:
        print(f"{cost.status}, {cost.megabytes} MB, {cost.seconds:.2f} s: {cost.body.content_type}, {cost.body.name}")
    assert [fault for cost in costs if (fault := cost.fault(bounds))] == []


def test_costly_bodies_of_an_endpoint_stay_within_bounds(serve_model: Serve, model_with_graph: Path) -> None:
    served = serve_model(model_with_graph, **SMALL)
    assert_within(served, many_lines(2 * MEBIBYTE) + drawn(DRAWN, Room(2 * MEBIBYTE, RequestLimits())), ENDPOINT)


@pytest.mark.parametrize("mebibytes", [pytest.param(6, marks=pytest.mark.nightly), 25])
def test_costly_bodies_of_a_batch_transform_stay_within_bounds(
    serve_model: Serve, model_with_graph: Path, mebibytes: int
) -> None:
    variables = {"SAGEMAKER_BATCH": "true", "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(mebibytes)}
    served = serve_model(model_with_graph, variables, **SMALL)
    shapes = [CostlyBody(each, "bad records", filled("x\n", 2 * 65_536)) for each in CODECS]
    assert_within(served, many_lines(mebibytes * MEBIBYTE) + shapes, TRANSFORM)


def test_costly_bodies_of_a_failing_handler_stay_within_bounds(serve_model: Serve, tmp_path: Path) -> None:
    served = serve_model(write_files(tmp_path, {"code/inference.py": HANDLER}), faulty=True, **SMALL)
    assert_within(served, [body for body in handler_bodies() if not body.pause], HANDLER_BOUNDS)
