"""Memory figures of a container, read from its cgroup and /proc/meminfo."""

from pathlib import Path

import pytest

from berth.runtime import memory
from tests.files import write_files

MEMINFO = "MemTotal: 4000 kB\nMemAvailable:    3000 kB\n"


@pytest.mark.parametrize(
    ("files", "available"),
    [
        ({}, 3_072_000),
        ({"memory.max": "max", "memory.current": "10"}, 3_072_000),
        ({"memory.max": "1000", "memory.current": "900", "memory.stat": "anon 700\ninactive_file 150\n"}, 250),
        ({"memory.max": "1000", "memory.current": "1100"}, 0),
        ({"memory.max": "9000000", "memory.current": "10"}, 3_072_000),
        (
            {
                "memory/memory.limit_in_bytes": "1000",
                "memory/memory.usage_in_bytes": "600",
                "memory/memory.stat": "inactive_file 7\ntotal_inactive_file 100\n",
            },
            500,
        ),
    ],
    ids=["no cgroup", "no limit", "v2", "v2 over limit", "host has less", "v1"],
)
def test_available_memory(tmp_path: Path, files: dict[str, str], available: int) -> None:
    below_cgroup = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    assert memory.available_memory(write_files(tmp_path, {"proc/meminfo": MEMINFO, **below_cgroup})) == available


@pytest.mark.parametrize(
    ("texts", "limit"),
    [
        ({"sys/fs/cgroup/memory.max": "1048576\n", "proc/meminfo": "MemTotal:  2048 kB\n"}, 1 << 20),
        ({"sys/fs/cgroup/memory.max": "max\n", "proc/meminfo": "MemTotal:  2048 kB\n"}, 2 << 20),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n"}, 4096),
    ],
    ids=["v2", "v2 no limit", "v1 no limit", "v1"],
)
def test_memory_limit(tmp_path: Path, texts: dict[str, str], limit: int | None) -> None:
    assert memory.memory_limit(write_files(tmp_path, texts)) == limit


@pytest.mark.parametrize(
    ("name", "text", "kills"),
    [
        ("memory.events", "oom 3\noom_kill 2\n", 2),
        ("memory/memory.oom_control", "under_oom 0\noom_kill 1\n", 1),
        ("other", "", 0),
    ],
)
def test_oom_kills(tmp_path: Path, name: str, text: str, kills: int) -> None:
    assert memory.oom_kills(write_files(tmp_path, {f"sys/fs/cgroup/{name}": text})) == kills


def test_available_memory_of_this_machine() -> None:
    assert memory.available_memory() > 10**8
