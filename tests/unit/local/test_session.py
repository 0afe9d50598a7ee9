"""Stopping what a run started."""

from unittest.mock import MagicMock

import pytest

from berth.local import session as sessions
from berth.local.session import RunSession


def test_hosts_that_had_to_be_killed_are_named() -> None:
    said: list[str] = []
    client = MagicMock()
    session = RunSession(client, "no-image", say=said.append, stop_grace=0.0)
    client.api.containers.return_value = [
        {"Id": f"{number}", "Names": [f"/berth-{session.run_id}-algo-{number}"]} for number in (2, 1)
    ]
    session.stop()
    assert said[1:] == ["algo-1, algo-2 did not end within 0 s and were killed."]
    assert session.killed == ["algo-1", "algo-2"]
    assert {call.args for call in client.api.kill.call_args_list} == {
        ("1", "SIGTERM"),
        ("2", "SIGTERM"),
        ("1",),
        ("2",),
    }


class Clock:
    """Time that only sleeping moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def strftime(self, form: str) -> str:
        return form


def test_sigterm_is_sent_again_to_who_may_not_have_heard_it_and_to_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
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
    asked = [call.args[0] for call in client.api.kill.call_args_list if "SIGTERM" in call.args]
    assert {each: asked.count(each) for each in asked} == {"old": 1, "unknown": 1, "young": 4}
