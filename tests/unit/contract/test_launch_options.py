"""Reads the BERTH_* variables of a job's launch; tests/unit/train/planning/test_plan.py tests their effect."""

from collections.abc import Callable, Mapping

import pytest

from berth.contract.launch_options import (
    read_launch_options,
    read_peer_timeout,
    read_timeout,
    read_trace,
)

SECONDS = "a number of seconds above 0"
FOUR_SECONDS = "a number of seconds, 4 or more"


@pytest.mark.parametrize(
    ("name", "text", "requirement"),
    [
        *(("BERTH_RENDEZVOUS_TIMEOUT", text, SECONDS) for text in ("0", "-1", "soon", "nan")),
        *(("BERTH_PEER_TIMEOUT", text, FOUR_SECONDS) for text in ("0", "3", "-60", "1m", "nan")),
    ],
)
def test_invalid_numbers_are_reported_with_other_problems(name: str, text: str, requirement: str) -> None:
    first, second = read_launch_options({}, None, {name: text, "BERTH_DISTRIBUTION": "x"}).problems
    assert first.startswith("BERTH_DISTRIBUTION must be")
    assert second == f"{name} must be {requirement}, not {text!r}."


@pytest.mark.parametrize(
    ("read", "name", "field"),
    [
        (read_timeout, "BERTH_RENDEZVOUS_TIMEOUT", "timeout"),
        (read_peer_timeout, "BERTH_PEER_TIMEOUT", "peer_timeout"),
    ],
)
def test_numbers_and_misspelt_names(read: Callable[[Mapping[str, str]], float | None], name: str, field: str) -> None:
    assert read({}) is None
    assert read({name: " 12.5"}) == getattr(read_launch_options({}, None, {name: " 12.5"}), field) == 12.5
    problem = f"the variable {name[:-1]} is not known: did you mean {name}?"
    assert read_launch_options({}, None, {name[:-1]: "9"}).problems == (problem,)


@pytest.mark.parametrize("name", ["BERTH_BACKEND", "BERTH_FAILURE_FILE", "BERTH_RANK_EVENTS"])
def test_job_must_not_set_variables_of_image(name: str) -> None:
    (problem,) = read_launch_options({}, None, {name: "x"}).problems
    assert problem.startswith(f"{name} is set by the image")


@pytest.mark.parametrize(
    ("environ", "steps"),
    [
        ({}, range(0)),
        ({"BERTH_TRACE": " "}, range(0)),
        ({"BERTH_TRACE": "10"}, range(10, 11)),
        ({"BERTH_TRACE": " 10-12 "}, range(10, 13)),
        ({"BERTH_TRACE": "901-1000"}, range(901, 1001)),
    ],
)
def test_traced_steps(environ: dict[str, str], steps: range) -> None:
    assert read_trace(environ) == steps
    assert read_launch_options({}, None, environ).trace == steps
