"""gpu-check: its records and table, its child processes, and runs on the CPU."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.runtime.gpu.bench import check
from berth.runtime.gpu.bench.record import Measured, Status, failed, judge, skipped, table
from berth.runtime.software import is_installed

COMMAND = [sys.executable, "-P", "-m", "berth.runtime.gpu.bench.check"]


@pytest.mark.parametrize(
    ("measured", "status", "ratio"),
    [
        pytest.param(Measured(8.0, "GB/s", limit=10.0, enough=0.5), Status.OK, 0.8, id="enough"),
        pytest.param(Measured(5.0, "GB/s", limit=10.0, enough=0.5), Status.OK, 0.5, id="exactly-enough"),
        pytest.param(Measured(4.0, "GB/s", limit=10.0, enough=0.5), Status.SLOW, 0.4, id="slow"),
        pytest.param(Measured(4.0, "GB/s"), Status.OK, None, id="unknown-limit"),
        pytest.param(Measured(None, "GB/s", limit=10.0), Status.OK, None, id="no-value"),
    ],
)
def test_status(measured: Measured, status: Status, ratio: float | None) -> None:
    record = judge("check", measured)
    assert (record.status, record.as_dict()["ratio"]) == (status, ratio)


def test_table() -> None:
    records = [
        judge("all-reduce", Measured(385.21, "GB/s", limit=478.116, note="NCCL 2.29.7, 8 ranks, 256 MiB, NVLink")),
        judge("matrix-product", Measured(31.04, "TFLOP/s", limit=125.0, enough=0.6, note="float16, 8192 × 8192")),
        judge("training-step", Measured(61.23, "ms")),
        failed("all-reduce-2", "RuntimeError: NCCL error.\nSecond line"),
        skipped("inference", "berth.serve is not in this image"),
    ]
    assert (
        table(records)
        == """\
check           measured    limit        share  status   note
all-reduce      385 GB/s    478 GB/s     0.81   ok       NCCL 2.29.7, 8 ranks, 256 MiB, NVLink
matrix-product  31 TFLOP/s  125 TFLOP/s  0.25   slow     float16, 8192 × 8192
training-step   61.2 ms     –                   ok
all-reduce-2    –           –                   failed   RuntimeError: NCCL error.
inference       –           –                   skipped  berth.serve is not in this image"""
    )


def described(cuda: str | None, devices: int) -> dict[str, Any]:
    return {"versions": {"torch": "2.13.0", "cuda": cuda}, "devices": [{"name": "NVIDIA L4"}] * devices}


@pytest.mark.parametrize(
    ("device", "result", "sentence"),
    [
        pytest.param("cuda", described("13.0", 1), "", id="gpu"),
        pytest.param("cpu", described(None, 0), "", id="requested-cpu"),
        pytest.param("cuda", described(None, 0), "torch 2.13.0 is a CPU build: use an image of a CUDA", id="cpu-build"),
        pytest.param("cuda", described("13.0", 0), "There is no GPU that torch can use here: run this on", id="no-gpu"),
    ],
)
def test_unusable_machine(device: str, result: dict[str, Any], sentence: str) -> None:
    refusal = check.unusable(device, result)
    assert refusal.startswith(sentence)
    assert bool(refusal) == bool(sentence)


@pytest.mark.parametrize(
    ("function", "limit", "error"),
    [
        ("fractions:Fraction", 60, "ValueError: Invalid literal for Fraction: 'true'"),
        ("os:system", 60, ""),
        ("test_check_measures:kills_itself", 60, "it was killed by SIGKILL"),
        ("test_check_measures:exits", 60, "it ended with exit code 3 before it had a result"),
        ("test_check_measures:hangs", 2, "it took longer than 2 s and was stopped"),
    ],
)
def test_measure_returns_value_or_error_as_one_line(function: str, limit: float, error: str, tmp_path: Path) -> None:
    (tmp_path / "test_check_measures.py").write_text(
        "import os, time\n"
        "def kills_itself(device): os.kill(os.getpid(), 9)\n"
        "def exits(device): os._exit(3)\n"
        "def hangs(device): time.sleep(600)\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    value, found = check.measure(function, "true", limit, {"PYTHONPATH": path})
    assert (value, found) == (None if error else 0, error)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (check.INFERENCE, "berth.serve is not in this image: the inference image has it"),
        ("no_such_package.module", "no_such_package.module is not installed here"),
    ],
)
def test_check_with_missing_module_is_skipped(module: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "is_installed", lambda name: name != check.INFERENCE and is_installed(name))
    unmet = check.Check("inference", "never:called", limit=1, needs=("json", module))
    assert check.run_check(unmet, "cpu", {}) == skipped("inference", reason)


@pytest.mark.nightly
def test_run_on_cpu(tmp_path: Path) -> None:
    """Runs the checks that test_bench_gpu.py does not run."""
    report = tmp_path / "report.json"
    names = ["matrix-product", "training-step"]
    only = [word for name in names for word in ("--only", name)]
    options = ["--device", "cpu", "--json", str(report), *only]
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    title, header, *rows = done.stdout.splitlines()
    assert title.partition(" CPUs, torch ")[0] == str(len(os.sched_getaffinity(0)))
    assert header.split() == ["check", "measured", "limit", "share", "status", "note"]
    assert [row.split()[0] for row in rows] == names
    assert [line for line in done.stderr.splitlines() if line.startswith("berth: ")] == [
        f"berth: {name} …" for name in names
    ]

    result = json.loads(report.read_text())
    assert result["command"].startswith("python -P -m berth.runtime.gpu.bench.check --device cpu --json ")
    assert f"torch {result['versions']['torch']}" in title
    assert result["devices"] == []
    checks_by_name = {each["name"]: each for each in result["checks"]}
    assert list(checks_by_name) == names
    assert {name: each["status"] for name, each in checks_by_name.items()} == dict.fromkeys(names, "ok")
    assert all(each["value"] > 0 and each["limit"] is None for each in result["checks"])
    assert checks_by_name["training-step"]["details"]["tokens"] == 32


def test_unwritable_json_is_refused_before_checks(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--json", str(tmp_path / "no-such-folder" / "report.json")]
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("berth: error: ")
    assert done.stderr.endswith(
        "report.json can't be written: name a file in an existing folder that you may write to.\n"
    )


@pytest.mark.slow
def test_sigterm_ends_running_check(tmp_path: Path) -> None:
    """Without a handler process 1 of a container would ignore SIGTERM, and the checks' processes would survive."""
    running = subprocess.Popen([*COMMAND, "--device", "cpu"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert running.stderr.readline() == "berth: all-reduce …\n"
    running.terminate()
    assert running.wait(timeout=30) == 143
    running.communicate()


def without_gpu() -> str:
    """Why the checks can't run on a GPU here; empty if they can."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA GPU here (no nvidia-smi)"
    import torch

    return "" if torch.cuda.is_available() else f"torch {torch.__version__} can use no GPU here"


@pytest.mark.gpu
def test_run_on_gpu(tmp_path: Path) -> None:
    if reason := without_gpu():
        pytest.skip(reason)
    report = tmp_path / "report.json"
    done = subprocess.run([*COMMAND, "--json", str(report)], capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(report.read_text())
    assert {each["status"] for each in result["checks"]} <= {"ok", "slow"}
    assert result["versions"]["nccl"] is not None
    assert importlib.util.find_spec("triton") is not None
