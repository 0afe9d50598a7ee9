"""How much memory a job's containers use, as `docker stats` counts it, asked for every few seconds."""

import contextlib
import threading
from collections.abc import Mapping
from typing import Any, Self

from docker.errors import DockerException
from docker.models.containers import Container
from requests.exceptions import RequestException

_EVERY_SECONDS = 2.0


def used_bytes(stats: Mapping[str, Any]) -> int | None:
    """What an answer of the engine says of memory, without the files that the kernel keeps of it; None if nothing,
    as of a container that does not run.
    """
    memory = stats.get("memory_stats", {})
    if "usage" not in memory:
        return None
    details = memory.get("stats", {})
    # Of cgroups v1 and v2.
    files = details.get("total_inactive_file", details.get("inactive_file", 0))
    return max(0, int(memory["usage"]) - int(files))


class MemoryWatch:
    """While entered, `used` has the bytes by host that each container uses; none that the engine does not tell."""

    def __init__(self, containers: Mapping[str, Container]) -> None:
        self.used: dict[str, int] = {}
        self._containers = containers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory of containers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join(_EVERY_SECONDS)

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            for host, container in self._containers.items():
                self.used.pop(host, None)
                with contextlib.suppress(DockerException, RequestException):  # it has just gone
                    stats: Any = container.stats(stream=False, one_shot=True)
                    if (used := used_bytes(stats)) is not None:
                        self.used[host] = used
