"""Stopping the containers of a run."""

from unittest.mock import MagicMock

import pytest

from berth.local import session as sessions
from berth.local.session import RunSession


def test_stop_names_killed_hosts() -> None:
    printed: list[str] = []
    client = MagicMock()
    session = RunSession(client, "no-image", say=printed.append, stop_grace=0.0)
    client.api.containers.return_value = [
        {"Id": f"{number}", "Names": [f"/berth-{session.run_id}-algo-{number}"]} for number in (2, 1)
    ]
    session.stop()
    assert printed[1:] == ["algo-1, algo-2 did not end within 0 s and were killed."]
    assert session.killed == ["algo-1", "algo-2"]
    assert {call.args for call in client.api.kill.call_args_list} == {
        ("1", "SIGTERM"),
        ("2", "SIGTERM"),
        ("1",),
        ("2",),
    }


class Clock:
    """A clock that only `sleep` advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def strftime(self, form: str) -> str:
        return form


def test_sigterm_is_repeated_only_for_containers_that_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(sessions, "time", clock)
    client = MagicMock()
    session = RunSession(client, "no-image", say=lambda _: None, stop_grace=10.0)
    client.api.containers.return_value = [{"Id": each, "Names": [f"/{each}"]} for each in ("old", "young", "unknown")]
    session.start(MagicMock(id="old"))
    clock.sleep(3.0)
    session.start(MagicMock(id="young"))
    clock.sleep(1.0)
    session.stop()
    signalled = [call.args[0] for call in client.api.kill.call_args_list if "SIGTERM" in call.args]
    assert {each: signalled.count(each) for each in signalled} == {"old": 1, "unknown": 1, "young": 4}
