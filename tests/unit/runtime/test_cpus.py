"""CPUs of a container."""

from pathlib import Path

import pytest

from berth.runtime.cpus import cpu_quota, thread_count


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu.max": "nonsense"}, None),
        ({}, None),
    ],
    ids=["v2", "v2 no limit", "v1", "v1 no limit", "unreadable", "no cgroup"],
)
def test_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("schedulable", "quota", "asked", "threads"),
    [
        (64, 2.0, None, 2),
        (64, 1.5, None, 2),
        (64, 0.25, None, 1),
        (4, 16.0, None, 4),
        (4, None, None, 4),
        (4, 2.0, "3", 3),
        (4, 2.0, "0", 2),
        (4, 2.0, "many", 2),
    ],
)
def test_threads(schedulable: int, quota: float | None, asked: str | None, threads: int) -> None:
    assert thread_count(schedulable, quota, asked) == threads
