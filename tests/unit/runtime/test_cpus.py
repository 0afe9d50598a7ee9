"""The number of CPUs that a container may use, and of threads for a model."""

import os
from pathlib import Path

import pytest

from berth.runtime import cpus
from berth.runtime.cpus import count_cpus, cpu_quota, has_vnni, model_threads
from tests.files import write_files


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
def test_cpu_quota(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    write_files(tmp_path / "sys/fs/cgroup", files)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("schedulable", "quota", "expected"),
    [(64, 2.0, 2), (64, 1.5, 1), (64, 0.25, 1), (4, 16.0, 4), (4, None, 4)],
)
def test_count_cpus_rounds_quota_down(
    monkeypatch: pytest.MonkeyPatch, schedulable: int, quota: float | None, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(schedulable))
    monkeypatch.setattr(cpus, "cpu_quota", lambda _: quota)
    assert count_cpus() == expected


@pytest.mark.parametrize(("value", "threads"), [("", 2), ("3", 3), ("0", 2), ("many", 2)])
def test_model_threads_follow_omp_num_threads(monkeypatch: pytest.MonkeyPatch, value: str, threads: int) -> None:
    monkeypatch.setattr(cpus, "count_cpus", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert model_threads() == threads


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu avx512f avx512_vnni", True), ("fpu avx2 avx_vnni", True), ("fpu avx2 avx512f", False)],
)
def test_has_vnni_reads_cpu_flags(tmp_path: Path, flags: str, expected: bool) -> None:
    write_files(tmp_path, {"proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t: none\n"})
    assert has_vnni(tmp_path) is expected


def test_no_vnni_without_cpuinfo(tmp_path: Path) -> None:
    assert not has_vnni(tmp_path)
