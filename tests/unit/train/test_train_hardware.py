"""Devices and cgroups of made-up hosts."""

from pathlib import Path

import pytest

from berth.train import hardware


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


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
def test_memory(tmp_path: Path, texts: dict[str, str], limit: int | None) -> None:
    assert hardware.memory_limit(files(tmp_path, texts)) == limit


@pytest.mark.parametrize(
    ("name", "text", "kills"),
    [
        ("memory.events", "oom 3\noom_kill 2\n", 2),
        ("memory/memory.oom_control", "under_oom 0\noom_kill 1\n", 1),
        ("other", "", 0),
    ],
)
def test_oom_kills(tmp_path: Path, name: str, text: str, kills: int) -> None:
    assert hardware.oom_kills(files(tmp_path, {f"sys/fs/cgroup/{name}": text})) == kills


def test_this_machine() -> None:
    found = hardware.probe()
    assert found.cpus > 0
    assert "lo" in found.interfaces
    assert found.shm is None or found.shm > 0
