"""How much memory there is, by a container's files."""

from pathlib import Path

import pytest

from berth.runtime.memory import available_memory

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
    ids=["no cgroup", "no limit", "v2", "over it", "the host has less", "v1"],
)
def test_what_may_still_be_taken(tmp_path: Path, files: dict[str, str], available: int) -> None:
    below_cgroup = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {"proc/meminfo": MEMINFO, **below_cgroup}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert available_memory(tmp_path) == available


def test_this_machine_has_some() -> None:
    assert available_memory() > 10**8
