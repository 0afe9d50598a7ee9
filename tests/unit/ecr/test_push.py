"""How often a push is tried, with the engine's streams played one after the other."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from berth.ecr.push import TRIES, push
from berth.ecr.registry.credentials import Credentials
from berth.ecr.registry.references import Reference
from berth.images.errors import UserError

PLACE = Reference("registry.example", "berth-train", "1")
LAYER = {"status": "Pushed", "id": "a" * 12}


class ScriptedEngine:
    """As much of a Docker client as a push asks: pushes play `streams` in turn, the last one again and again."""

    def __init__(self, *streams: list[dict[str, Any]]) -> None:
        self.streams = list(streams)
        self.asked: list[dict[str, str]] = []
        self.api = self

    def push(self, repository: str, *, auth_config: dict[str, str], **_: Any) -> Iterator[dict[str, Any]]:
        assert repository == PLACE.name
        self.asked.append(auth_config)
        return iter(self.streams.pop(0) if len(self.streams) > 1 else self.streams[0])


def failing(message: str) -> dict[str, Any]:
    return {"error": message, "errorDetail": {"message": message}}


def run(engine: ScriptedEngine) -> tuple[Any, list[float], list[bool]]:
    """The push's result, its waits, and for each login whether it was to be a new one."""
    waits: list[float] = []
    logins: list[bool] = []

    def login(renew: bool) -> Credentials:
        logins.append(renew)
        return Credentials("AWS", f"token-{len(logins)}")

    client: Any = engine
    return push(client, PLACE, login, sleep=waits.append), waits, logins


def test_a_push_that_ends_well_is_one_try() -> None:
    engine = ScriptedEngine([LAYER])
    sent, waits, logins = run(engine)
    assert (sent.layers, sent.tries, waits, logins) == ({"a" * 12}, 1, [], [False])
    assert engine.asked == [{"username": "AWS", "password": "token-1"}]


def test_a_connection_that_breaks_is_waited_for_longer_each_time_until_a_layer_arrives() -> None:
    refused = [failing("dial tcp: connect: connection refused")]
    sent, waits, _ = run(ScriptedEngine(refused, refused, [LAYER, *refused], refused, [LAYER]))
    assert (sent.tries, waits) == (5, [1.0, 2.0, 1.0, 2.0])


def test_a_token_that_ran_out_is_renewed_at_once() -> None:
    expired = [LAYER, failing("denied: Your authorization token has expired. Reauthenticate and try again.")]
    engine = ScriptedEngine(expired, [{"status": "Layer already exists", "id": "a" * 12}])
    sent, waits, logins = run(engine)
    assert (sent.layers, waits, logins) == ({"a" * 12}, [0.0], [False, True])
    assert engine.asked[1]["password"] == "token-2"


def test_a_login_that_is_refused_twice_is_wrong() -> None:
    engine = ScriptedEngine([failing("no basic auth credentials")])
    with pytest.raises(UserError, match=r"does not take the login"):
        run(engine)
    assert len(engine.asked) == 2


def test_a_registry_that_stays_away_is_given_up() -> None:
    engine = ScriptedEngine([failing("unexpected EOF")])
    with pytest.raises(UserError, match=r"what arrived is not sent again"):
        run(engine)
    assert len(engine.asked) == TRIES


def test_what_the_engine_tried_five_times_by_itself_is_tried_once_more() -> None:
    engine = ScriptedEngine([{"status": "Retrying in 5 seconds", "id": "a" * 12}, failing("HTTP status: 500 Internal")])
    with pytest.raises(UserError, match=r"a full disk"):
        run(engine)
    assert len(engine.asked) == 2


def test_what_no_retry_can_mend_is_said_at_once() -> None:
    engine = ScriptedEngine([failing("name unknown: The repository does not exist")])
    with pytest.raises(UserError, match=r"does not exist, or no longer"):
        run(engine)
    assert len(engine.asked) == 1


def test_what_is_stopped_before_its_turn_does_not_begin() -> None:
    engine = ScriptedEngine([LAYER])
    client: Any = engine
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(KeyboardInterrupt):
        push(client, PLACE, lambda renew: None, stopped=stopped)
    assert engine.asked == []
