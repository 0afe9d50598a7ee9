"""Detects the driver in a child process, with a double of libcuda."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from berth.runtime import subprocesses
from berth.runtime.gpu import driver
from berth.runtime.gpu.driver import Device, DriverState
from tests.files import write_files

V100 = "Tesla V100-SXM2-16GB:7.0"


@pytest.fixture(scope="module")
def fake(libcuda: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which libcuda.so.1 is the double."""
    folder = libcuda(tmp_path_factory.mktemp("driver"))
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def test_version_and_devices(fake: dict[str, str]) -> None:
    state = driver.detect_in_child(
        fake | {"FAKE_CUDA_VERSION": "12020", "FAKE_CUDA_DEVICES": f"{V100},NVIDIA A10G:8.6"}
    )
    devices = (Device("Tesla V100-SXM2-16GB", (7, 0)), Device("NVIDIA A10G", (8, 6)))
    assert state == DriverState(version=(12, 2), code=0, devices=devices)


def test_cuinit_code_has_name_of_driver(fake: dict[str, str]) -> None:
    state = driver.detect_in_child(fake | {"FAKE_CUDA_VERSION": "13000", "FAKE_CUDA_INIT": "802"})
    assert (state.version, state.code, state.name) == ((13, 0), 802, "CUDA_ERROR_SYSTEM_NOT_READY")
    assert driver.detect_in_child(fake | {"FAKE_CUDA_INIT": "7"}).name == ""


def test_closed_device_nodes_are_listed(tmp_path: Path) -> None:
    write_files(tmp_path, {"dev/nvidia0": ""})
    (tmp_path / "dev/nvidiactl").mkdir()  # opening a folder for writing fails even for root
    assert driver._closed(tmp_path) == (
        f"{tmp_path}/dev/nvidiactl: Is a directory",
        f"{tmp_path}/dev/nvidia-uvm: No such file or directory",
    )


def test_missing_libcuda(tmp_path: Path) -> None:
    state = driver.detect_in_child({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    assert state.missing.startswith("libcuda.so.1: cannot open shared object file")


@pytest.mark.slow
def test_crash_or_hang_of_driver_is_a_fault(fake: dict[str, str]) -> None:
    assert driver.detect_in_child(fake | {"FAKE_CUDA_INIT": "crash"}) == DriverState(fault="crashed (SIGABRT)")
    assert driver.detect_in_child(fake | {"FAKE_CUDA_INIT": "hang"}, limit=1) == DriverState(
        fault="did not answer within 1 s"
    )


class Sleeper:
    """A child in a hung driver: SIGKILL does not end it, and waiting without a limit would never return."""

    pid = 2**22 + 1  # no process has it: the kernel's limit is 2**22
    returncode = None
    stdout = stderr = None

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None
        raise subprocess.TimeoutExpired("child", timeout)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        return str(self.wait(timeout)), ""


def test_detection_does_not_wait_for_unkillable_child(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = Sleeper()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: sleeper)
    assert driver.detect_in_child({}, limit=1) == DriverState(fault="did not answer within 1 s")


def test_run_kills_child_after_limit(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        subprocesses.run(["sh", "-c", "echo $$ >pid; exec sleep 600"], 0.5, os.environ, cwd=str(tmp_path))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_closed_wsl_device_is_listed(tmp_path: Path) -> None:
    (tmp_path / "dev/dxg").mkdir(parents=True)
    assert driver._closed(tmp_path) == (f"{tmp_path}/dev/dxg: Is a directory",)


@pytest.mark.parametrize(
    ("nodes", "environ", "count"),
    [
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], {}, 2),
        (["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        (["nvidia0", "nvidia1"], {"CUDA_VISIBLE_DEVICES": ""}, 0),
        (["nvidia0"], {"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        (["dxg"], {}, 1),
        (["dxg", "nvidia0", "nvidia1"], {}, 2),
        (["null"], {}, 0),
    ],
)
def test_count_gpus(tmp_path: Path, nodes: list[str], environ: dict[str, str], count: int) -> None:
    write_files(tmp_path / "dev", dict.fromkeys(nodes, ""))
    assert driver.count_gpus(tmp_path, environ) == count


@pytest.mark.parametrize(
    ("text", "cuda"),
    [("cuda: Optional[str] = '13.0'\n", "13.0"), ('cuda = "12.4"\n', "12.4"), ("cuda: Optional[str] = None\n", None)],
)
def test_torch_cuda_does_not_import_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cuda: str | None
) -> None:
    version = f"__version__ = '2.13.0'\n{text}"
    write_files(tmp_path / "torch", {"__init__.py": "raise AssertionError('imported')", "version.py": version})
    done = subprocess.run(
        [sys.executable, "-P", "-c", "from berth.runtime.gpu.driver import torch_cuda; print(torch_cuda())"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == (str(cuda), "")
