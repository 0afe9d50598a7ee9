"""Runs bench/gpu.py in a bare copy of the checkout, with an interpreter in which berth is not installed."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from berth.images.pins.pins import ROOT

# -S skips the .pth files of site-packages, such as that of the editable installation of berth.
INTERPRETER = [sys.executable, "-S", "-P"]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A copy of the folders of the checkout that bench/gpu.py needs."""
    checkout = tmp_path / "checkout"
    for folder in ("bench", "berth", "serve"):
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, checkout / folder, symlinks=True, ignore=unwanted)
    return checkout


def run(*command: str, cwd: Path, packages: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the interpreter, with or without the packages of the test environment."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    environment = {**os.environ, "PYTHONPATH": str(Path(torch.origin).parents[1]) if packages else ""}
    command = (*INTERPRETER, *command)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.nightly
def test_bench_gpu_runs_from_bare_checkout(bare: Path, tmp_path: Path) -> None:
    assert "ModuleNotFoundError" in run("-c", "import berth.runtime", cwd=tmp_path).stderr
    report = tmp_path / "report.json"
    options = ["--device", "cpu", "--only", "all-reduce", "--only", "inference", "--json", str(report)]
    done = run(str(bare / "bench" / "gpu.py"), *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(report.read_text())
    assert [(each["name"], each["status"]) for each in result["checks"]] == [("all-reduce", "ok"), ("inference", "ok")]
    assert [each["bytes"] for each in result["checks"][0]["details"]["sizes"]] == [1 << 18, 1 << 20]
    assert result["checks"][1]["note"].endswith("fp32 on cpu")
    assert result["command"] == f"python -S -P {bare}/bench/gpu.py {' '.join(options)}"


def test_bench_gpu_without_torch(bare: Path, tmp_path: Path) -> None:
    done = run(str(bare / "bench" / "gpu.py"), cwd=tmp_path, packages=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "berth: error: torch is not installed here: install it, or run this in one of the kit's images.\n"
    )
