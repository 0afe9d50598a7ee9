"""What an engine's figures of a container say of its memory."""

import threading
from typing import Any

import pytest
from docker.errors import NotFound

from berth.local import container_memory
from berth.local.container_memory import MemoryWatch, used_bytes


@pytest.mark.parametrize(
    ("stats", "used"),
    [
        pytest.param({"memory_stats": {"usage": 900, "stats": {"total_inactive_file": 100}}}, 800, id="cgroup-v1"),
        pytest.param({"memory_stats": {"usage": 900, "stats": {"inactive_file": 200}}}, 700, id="cgroup-v2"),
        pytest.param({"memory_stats": {"usage": 900}}, 900, id="no-details"),
        pytest.param({"memory_stats": {}}, None, id="not-running"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_used_bytes(stats: dict[str, Any], used: int | None) -> None:
    assert used_bytes(stats) == used


class FakeContainer:
    """Uses 7 bytes at the first question, and is gone at the second."""

    def __init__(self) -> None:
        self.gone = threading.Event()
        self._asked = 0

    def stats(self, *, stream: bool, one_shot: bool) -> dict[str, Any]:
        assert (stream, one_shot) == (False, True), "anything else takes the engine a second"
        self._asked += 1
        if self._asked > 1:
            self.gone.set()
            raise NotFound("gone")
        return {"memory_stats": {"usage": 7}}


def test_a_container_that_has_gone_uses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_memory, "_EVERY_SECONDS", 0.01)
    container: Any = FakeContainer()
    with MemoryWatch({"algo-1": container}) as watch:
        assert container.gone.wait(10)
    assert watch.used == {}
