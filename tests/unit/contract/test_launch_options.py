"""What a job may ask of its launch; tests/unit/train/planning/test_plan.py has what becomes of it."""

import pytest

from berth.contract.launch_options import (
    read_launch_options,
    read_peer_timeout,
    read_price,
    read_timeout,
    read_trace,
)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan"])
def test_invalid_rendezvous_timeout(text: str) -> None:
    environ = {"BERTH_RENDEZVOUS_TIMEOUT": text, "BERTH_DISTRIBUTION": "x"}
    told = " ".join(read_launch_options({}, None, environ).problems)
    assert f"BERTH_RENDEZVOUS_TIMEOUT must be a number of seconds above 0, not {text!r}." in told
    assert "BERTH_DISTRIBUTION must be" in told


def test_rendezvous_timeout() -> None:
    assert read_timeout({}) is None
    assert read_timeout({"BERTH_RENDEZVOUS_TIMEOUT": " 2.5"}) == 2.5


@pytest.mark.parametrize("text", ["0", "3", "-60", "1m", "nan"])
def test_invalid_peer_timeout(text: str) -> None:
    (told,) = read_launch_options({}, None, {"BERTH_PEER_TIMEOUT": text}).problems
    assert told == f"BERTH_PEER_TIMEOUT must be a number of seconds, 4 or more, not {text!r}."


def test_peer_timeout() -> None:
    assert read_peer_timeout({}) is None
    assert read_launch_options({}, None, {"BERTH_PEER_TIMEOUT": "120"}).peer_timeout == 120
    assert read_launch_options({}, None, {"BERTH_PEERS_TIMEOUT": "9"}).problems == (
        "the variable BERTH_PEERS_TIMEOUT is not known: did you mean BERTH_PEER_TIMEOUT?",
    )


@pytest.mark.parametrize("name", ["BERTH_BACKEND", "BERTH_FAILURE_FILE", "BERTH_RANK_EVENTS"])
def test_job_must_not_set_variables_of_image(name: str) -> None:
    (told,) = read_launch_options({}, None, {name: "x"}).problems
    assert told.startswith(f"{name} is set by the image")


@pytest.mark.parametrize("text", ["0", "-1", "$3.06", "3,06", "nan"])
def test_invalid_price_is_reported_with_other_problems(text: str) -> None:
    environ = {"BERTH_PRICE_PER_HOUR": text, "BERTH_DISTRIBUTION": "x"}
    told = read_launch_options({}, None, environ).problems
    assert len(told) == 2
    assert told[1] == (
        "BERTH_PRICE_PER_HOUR must be the price of an instance per hour in dollars, a plain number above 0, not "
        f"{text!r}."
    )


def test_price_per_hour() -> None:
    assert read_price({}) is None
    assert read_price({"BERTH_PRICE_PER_HOUR": " 3.06"}) == 3.06
    assert read_launch_options({}, None, {"BERTH_PRICE_PER_HOU": "1"}).problems == (
        "the variable BERTH_PRICE_PER_HOU is not known: did you mean BERTH_PRICE_PER_HOUR?",
    )


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
