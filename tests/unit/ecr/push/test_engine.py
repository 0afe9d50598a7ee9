"""The engine's push with retries, on recorded streams of events."""

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
    """A Docker client whose pushes return `streams` one after the other, and repeat the last."""

    def __init__(self, *streams: list[dict[str, Any]]) -> None:
        self.streams = list(streams)
        self.logins: list[dict[str, str]] = []
        self.api = self.images = self

    def push(self, repository: str, *, auth_config: dict[str, str], **_: Any) -> Iterator[dict[str, Any]]:
        assert repository == PLACE.name
        self.logins.append(auth_config)
        return iter(self.streams.pop(0) if len(self.streams) > 1 else self.streams[0])


def failing(message: str) -> dict[str, Any]:
    return {"error": message, "errorDetail": {"message": message}}


class Waits(threading.Event):
    """An event that records its waits instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


def run(engine: Any) -> tuple[frozenset[str], list[float], list[bool]]:
    """The layers that were sent, the waits in seconds, and `renew` of each login."""
    waits = Waits()
    logins: list[bool] = []

    def login(*, renew: bool) -> Credentials:
        logins.append(renew)
        return Credentials("AWS", f"token-{len(logins)}")

    return push_with_retries(PushContext(engine, waits), PLACE, login), waits.seconds, logins


def no_login(*, renew: bool) -> None:
    """The login of a registry that needs none."""


def test_successful_push_is_tried_once() -> None:
    engine: Any = ScriptedEngine([LAYER])
    sent, waits, logins = run(engine)
    assert (set(sent), waits, logins) == ({"a" * 12}, [], [False])
    assert engine.logins == [{"username": "AWS", "password": "token-1"}]


def test_waits_double_until_a_layer_arrives() -> None:
    refused = [failing("dial tcp: connect: connection refused")]
    _, waits, logins = run(ScriptedEngine(refused, refused, [LAYER, *refused], refused, [LAYER]))
    assert (len(logins), waits) == (5, [1.0, 2.0, 1.0, 2.0])


def test_expired_token_is_renewed_without_a_wait() -> None:
    expired = [LAYER, failing("denied: Your authorization token has expired. Reauthenticate and try again.")]
    engine: Any = ScriptedEngine(expired, [{"status": "Layer already exists", "id": "a" * 12}])
    sent, waits, logins = run(engine)
    assert (set(sent), waits, logins) == ({"a" * 12}, [0.0], [False, True])
    assert engine.logins[1]["password"] == "token-2"


RETRIED = [{"status": f"Retrying in {seconds} seconds", "id": "a" * 12} for seconds in (5, 4)]


@pytest.mark.parametrize(
    ("events", "message", "tries"),
    [
        pytest.param([failing("no basic auth credentials")], "does not accept the login", 2, id="login-refused-twice"),
        pytest.param([failing("unexpected EOF")], "complete layers are not sent again", TRIES, id="gives-up"),
        pytest.param([*RETRIED, failing("HTTP status: 500 Internal")], "a full disk", 2, id="after-the-engines"),
        pytest.param(
            [failing("name unknown: The repository does not exist")], "does not exist, or no longer", 1, id="permanent"
        ),
    ],
)
def test_push_fails_after_tries_that_can_help(events: list[dict[str, Any]], message: str, tries: int) -> None:
    engine = ScriptedEngine(events)
    with pytest.raises(UserError, match=message):
        run(engine)
    assert len(engine.logins) == tries


def test_retries_of_the_engine_and_ours_are_printed_once() -> None:
    broken = (
        'Patch "http://registry.example/v2/berth-train/blobs/uploads/1?_state=abc": write tcp 10.0.0.1:4: broken pipe'
    )
    lines: list[str] = []
    engine: Any = ScriptedEngine([*RETRIED, failing(broken)], [LAYER])
    push_with_retries(PushContext(engine, Waits(), say=lines.append), PLACE, no_login)
    retry_line = "a layer does not get through; the engine tries it again by itself, for up to 50 s"
    assert lines == [f"{PLACE}: {retry_line}", f"{PLACE}: broken pipe; trying again in 4 s, 0 of 1 layers are there"]


def test_stopped_push_does_not_start() -> None:
    engine: Any = ScriptedEngine([LAYER])
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(KeyboardInterrupt):
        push_with_retries(PushContext(engine, stopped), PLACE, no_login)
    assert engine.logins == []


def test_stop_ends_the_wait_before_a_retry() -> None:
    engine: Any = ScriptedEngine([failing("toomanyrequests: slow down")])
    stopped = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        push_with_retries(PushContext(engine, stopped, say=lambda line: stopped.set()), PLACE, no_login)
    assert len(engine.logins) == 1


class LostEngine(ScriptedEngine):
    """An engine that fails with `error`: when it tags or untags, and in a push after one layer."""

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
def test_lost_engine_is_reported(error: Exception) -> None:
    engine: Any = LostEngine(error)
    with pytest.raises(UserError, match=r"the Docker engine went away .* start it again, then push again"):
        run(engine)
    with pytest.raises(UserError, match=r"the Docker engine went away"), tagged(engine, "sha256:1", PLACE):
        pytest.fail("the engine can't tag the image")


def test_lost_engine_does_not_hide_the_error_of_the_push(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = LostEngine(requests.ConnectionError("Connection refused"))
    monkeypatch.setattr(engine, "tag", lambda *_: None)
    with pytest.raises(UserError, match="error of the push"), tagged(engine, "sha256:1", PLACE):
        raise UserError("error of the push.")


def test_missing_image_is_reported_when_it_is_tagged() -> None:
    engine: Any = LostEngine(docker.errors.APIError("404", explanation="No such image: sha256:1"))
    with pytest.raises(UserError, match=r"can't tag sha256:1 as registry.example/berth-train:1 \(No such image"):
        with tagged(engine, "sha256:1", PLACE):
            pytest.fail("the engine can't tag the image")


class Names:
    """An engine with these image names (tag → image ID)."""

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
def test_tagged_restores_the_engines_names(before: dict[str, str]) -> None:
    engine: Any = Names(**before)
    names = dict(engine.names)
    with tagged(engine, "sha256:ours", PLACE):
        assert engine.names == {str(PLACE): "sha256:ours"}
    assert engine.names == names
