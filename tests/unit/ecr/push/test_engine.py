"""How often a push is tried, with the engine's streams played one after the other."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests
from urllib3.exceptions import ProtocolError

from berth.common.errors import UserError
from berth.ecr.push.context import PushContext
from berth.ecr.push.engine import TRIES, push_with_retries, tagged
from berth.ecr.registry.challenge import Credentials
from berth.ecr.registry.references import Reference

PLACE = Reference("registry.example", "berth-train", "1")
LAYER = {"status": "Pushed", "id": "a" * 12}


class ScriptedEngine:
    """As much of a Docker client as a push asks: pushes play `streams` in turn, the last one again and again."""

    def __init__(self, *streams: list[dict[str, Any]]) -> None:
        self.streams = list(streams)
        self.asked: list[dict[str, str]] = []
        self.api = self.images = self

    def push(self, repository: str, *, auth_config: dict[str, str], **_: Any) -> Iterator[dict[str, Any]]:
        assert repository == PLACE.name
        self.asked.append(auth_config)
        return iter(self.streams.pop(0) if len(self.streams) > 1 else self.streams[0])


def failing(message: str) -> dict[str, Any]:
    return {"error": message, "errorDetail": {"message": message}}


class Waits(threading.Event):
    """An event that takes no time to wait for, and knows how long was waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


def run(engine: ScriptedEngine) -> tuple[frozenset[str], list[float], list[bool]]:
    """The layers that went, its waits, and for each login whether it was to be a new one."""
    waits = Waits()
    logins: list[bool] = []

    def login(*, renew: bool) -> Credentials:
        logins.append(renew)
        return Credentials("AWS", f"token-{len(logins)}")

    client: Any = engine
    return push_with_retries(PushContext(client, waits), PLACE, login), waits.seconds, logins


def no_login(*, renew: bool) -> None:
    """Of a registry that asks for nothing."""


def test_a_push_that_ends_well_is_one_try() -> None:
    engine = ScriptedEngine([LAYER])
    sent, waits, logins = run(engine)
    assert (set(sent), waits, logins) == ({"a" * 12}, [], [False])
    assert engine.asked == [{"username": "AWS", "password": "token-1"}]


def test_a_connection_that_breaks_is_waited_for_longer_each_time_until_a_layer_arrives() -> None:
    refused = [failing("dial tcp: connect: connection refused")]
    _, waits, logins = run(ScriptedEngine(refused, refused, [LAYER, *refused], refused, [LAYER]))
    assert (len(logins), waits) == (5, [1.0, 2.0, 1.0, 2.0])


def test_a_token_that_ran_out_is_renewed_at_once() -> None:
    expired = [LAYER, failing("denied: Your authorization token has expired. Reauthenticate and try again.")]
    engine = ScriptedEngine(expired, [{"status": "Layer already exists", "id": "a" * 12}])
    sent, waits, logins = run(engine)
    assert (set(sent), waits, logins) == ({"a" * 12}, [0.0], [False, True])
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


RETRIED = [{"status": f"Retrying in {seconds} seconds", "id": "a" * 12} for seconds in (5, 4)]


def test_what_the_engine_tried_five_times_by_itself_is_tried_once_more() -> None:
    engine = ScriptedEngine([*RETRIED, failing("HTTP status: 500 Internal")])
    with pytest.raises(UserError, match=r"a full disk"):
        run(engine)
    assert len(engine.asked) == 2


def test_each_try_says_once_that_the_engine_tries_by_itself_and_why_the_next_one_follows() -> None:
    broken = (
        'Patch "http://registry.example/v2/berth-train/blobs/uploads/1?_state=abc": write tcp 10.0.0.1:4: broken pipe'
    )
    lines: list[str] = []
    client: Any = ScriptedEngine([*RETRIED, failing(broken)], [LAYER])
    push_with_retries(PushContext(client, Waits(), say=lines.append), PLACE, no_login)
    alone = "a layer does not get through; the engine tries it again by itself, for up to 50 s"
    assert lines == [f"{PLACE}: {alone}", f"{PLACE}: broken pipe; trying again in 4 s, 0 of 1 layers are there"]


def test_what_no_retry_can_fix_is_said_at_once() -> None:
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
        push_with_retries(PushContext(client, stopped), PLACE, no_login)
    assert engine.asked == []


def test_a_stop_ends_the_wait_for_a_busy_registry() -> None:
    engine = ScriptedEngine([failing("toomanyrequests: slow down")])
    client: Any = engine
    stopped = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        push_with_retries(PushContext(client, stopped, say=lambda line: stopped.set()), PLACE, no_login)
    assert len(engine.asked) == 1


class LostEngine(ScriptedEngine):
    """One whose answers end with `error`: those that tag and untag at once, that of a push after a layer."""

    def __init__(self, error: Exception) -> None:
        super().__init__([])
        self.error = error

    def push(self, repository: str, **_: Any) -> Iterator[dict[str, Any]]:
        yield LAYER
        raise self.error

    def tag(self, *_: Any, **__: Any) -> None:
        raise self.error

    remove_image = tag

    def get(self, name: str) -> Any:
        raise docker.errors.ImageNotFound(name)


@pytest.mark.parametrize(
    "error",
    [
        ProtocolError("Connection broken", ConnectionResetError()),
        requests.ConnectionError("Connection refused"),
        requests.ReadTimeout("Read timed out"),
    ],
)
def test_an_engine_that_goes_away_is_named(error: Exception) -> None:
    engine = LostEngine(error)
    client: Any = engine
    with pytest.raises(UserError, match=r"the Docker engine went away .* start it again, then push again"):
        run(engine)
    with pytest.raises(UserError, match=r"the Docker engine went away"), tagged(client, "sha256:1", PLACE):
        pytest.fail("it has no name there")


def test_an_engine_that_is_gone_at_the_end_hides_no_error_of_the_push(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LostEngine(requests.ConnectionError("Connection refused"))
    monkeypatch.setattr(engine, "tag", lambda *_: None)
    client: Any = engine
    with pytest.raises(UserError, match="as it is"), tagged(client, "sha256:1", PLACE):
        raise UserError("as it is.")


def test_an_image_that_is_gone_before_its_turn_is_named() -> None:
    client: Any = LostEngine(docker.errors.APIError("404", explanation="No such image: sha256:1"))
    with pytest.raises(UserError, match=r"can't tag sha256:1 as registry.example/berth-train:1 \(No such image"):
        with tagged(client, "sha256:1", PLACE):
            pytest.fail("it has no name there")


class Names:
    """An engine that has these names of images."""

    def __init__(self, **names: str) -> None:
        self.names = {f"{PLACE.name}:{tag}": image for tag, image in names.items()}
        self.api = self.images = self

    def get(self, name: str) -> Any:
        if name not in self.names:
            raise docker.errors.ImageNotFound(name)
        return SimpleNamespace(id=self.names[name])

    def tag(self, image: str, name: str, tag: str) -> None:
        self.names[f"{name}:{tag}"] = image

    def remove_image(self, name: str, *, noprune: bool) -> None:
        assert noprune
        del self.names[name]


@pytest.mark.parametrize("before", [{}, {PLACE.tag: "sha256:ours"}, {PLACE.tag: "sha256:theirs"}])
def test_a_push_leaves_the_engines_names_as_they_were(before: dict[str, str]) -> None:
    engine: Any = Names(**before)
    names = dict(engine.names)
    with tagged(engine, "sha256:ours", PLACE):
        assert engine.names == {str(PLACE): "sha256:ours"}
    assert engine.names == names
