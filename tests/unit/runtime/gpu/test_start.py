"""The GPU check before training or serving, in real processes with doubles of libcuda and cuda-compat."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Runs the check as an entry does, and prints the result. It prints "begins" again if it is executed again.
PROGRAM = """
import os, sys
from pathlib import Path
from berth.runtime.gpu import start
print("begins", os.getpid(), sys.argv[1:], flush=True)
result = start.check(sys.argv[1], int(sys.argv[2]), lambda line: print("log:", line, flush=True), Path(sys.argv[3]))
print("library path:", os.environ.get("LD_LIBRARY_PATH", ""))
print(result.gpus, "GPUs, sentence:", result.refusal)
"""
OLD = {"FAKE_CUDA_VERSION": "11040", "FAKE_CUDA_DEVICES": "Tesla T4:7.5"}
COMPAT = {"COMPAT_CUDA_VERSION": "12040", "COMPAT_CUDA_DEVICES": "Tesla T4:7.5"}

Start = Callable[..., list[str]]


@pytest.fixture(scope="module")
def folders(libcuda: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("libraries")
    return libcuda(folder / "driver"), libcuda(folder / "compat", "COMPAT_CUDA_")


@pytest.fixture
def begin(folders: tuple[Path, Path]) -> Start:
    """`begin("12.4", 1, FAKE_CUDA_…)` runs PROGRAM with the doubles of both libraries; returns its lines."""

    def run(cuda: str, gpus: int, compat: Path | None = None, **variables: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, cuda, str(gpus), str(compat or folders[1])],
            env={**os.environ, "LD_LIBRARY_PATH": str(folders[0]), **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return run


def test_cuda_compat_is_not_used_with_new_driver(begin: Start, folders: tuple[Path, Path]) -> None:
    lines = begin("12.4", 1, **{**OLD, **COMPAT, "FAKE_CUDA_VERSION": "12020"})
    assert len(lines) == 3
    assert lines[1:] == [f"library path: {folders[0]}", "1 GPUs, sentence: None"]


def test_cuda_compat_replaces_too_old_driver(begin: Start, folders: tuple[Path, Path]) -> None:
    lines = begin("12.4", 1, **OLD, **COMPAT)
    begins = lines[0].split()
    assert lines == [
        " ".join(begins),
        f"log: cuda-compat: the host's driver is too old for CUDA 12.4, so {folders[1]} is used instead",
        " ".join(begins),  # the same process with the same arguments, once
        f"library path: {folders[1]}:{folders[0]}",
        "1 GPUs, sentence: None",
    ]


@pytest.mark.parametrize(
    ("cuda", "compat", "words"),
    [
        ("12.4", {"COMPAT_CUDA_INIT": "804"}, "cuda-compat did not help (CUDA_ERROR_COMPAT_NOT_SUPPORTED"),
        ("13.0", {}, "cuda-compat did not help (it is too old)"),
        # After the driver's folder, so that it is not loaded.
        ("12.4", {"LD_LIBRARY_PATH": "{0}:{1}"}, "driver 470 ends at CUDA 11.4: use"),
    ],
    ids=["unsupported GPU", "too old", "in the path"],
)
def test_cuda_compat_that_does_not_help_is_not_used(
    begin: Start, folders: tuple[Path, Path], cuda: str, compat: dict[str, str], words: str
) -> None:
    variables = {name: value.format(*folders) for name, value in compat.items()}
    lines = begin(cuda, 1, **OLD, **COMPAT, **variables)
    assert len(lines) == 3
    assert lines[1].startswith(f"library path: {folders[0]}")
    assert words in lines[2]


def test_error_suggests_missing_cuda_compat(begin: Start, tmp_path: Path) -> None:
    lines = begin("12.4", 1, tmp_path, **OLD)
    assert lines[2].endswith("or build the image with cuda-compat.")


def test_host_without_gpus_is_logged(begin: Start, folders: tuple[Path, Path]) -> None:
    assert begin("13.0", 0)[1:] == [
        "log: no GPU is usable: torch for CUDA 13.0 runs on the CPU (docker run --gpus all passes GPUs in)",
        f"library path: {folders[0]}",
        "0 GPUs, sentence: None",
    ]


def test_number_of_gpus_comes_from_driver(begin: Start) -> None:
    mig = {"FAKE_CUDA_VERSION": "13000", "FAKE_CUDA_DEVICES": "NVIDIA A100-SXM4-40GB MIG 1g.5gb:8.0"}
    lines = begin("13.0", 8, **mig)
    assert lines[1] == "log: the driver offers 1 of 8 GPUs here (MIG: a process can use one instance)"
    assert lines[3] == "1 GPUs, sentence: None"
    lost = begin("13.0", 8, **mig | {"FAKE_CUDA_DEVICES": ",".join(["NVIDIA A100-SXM4-40GB:8.0"] * 7)})
    assert lost[2].startswith("7 GPUs, sentence: The driver offers 7 of the 8 GPUs in this container: ")


# Sends SIGTERM just before execve, so the new program has no handler yet.
SIGNALLED = """
import os, signal, sys
from pathlib import Path
from berth.runtime.gpu import start
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
print("begins", flush=True)
start.unblock_signals()
real_execve = os.execve
def execve(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    real_execve(*arguments)
os.execve = execve
start.check("12.4", 1, print, Path(sys.argv[1]))
"""


def test_signal_during_restart_is_handled_by_new_program(folders: tuple[Path, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SIGNALLED, str(folders[1])],
        env={**os.environ, "LD_LIBRARY_PATH": str(folders[0]), **OLD, **COMPAT},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.count("begins\n") == 2
