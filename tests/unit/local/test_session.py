"""Stopping what a run started."""

from unittest.mock import MagicMock

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
    assert {call.args for call in client.api.kill.call_args_list} == {
        ("1", "SIGTERM"),
        ("2", "SIGTERM"),
        ("1",),
        ("2",),
    }
