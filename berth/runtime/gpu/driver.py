"""Detects this host's NVIDIA driver and GPUs before torch is imported.

`detect_in_child` uses a child process, `python -P -m berth.runtime.gpu.driver`, which prints one line of JSON: if the
driver crashes or hangs, only the child is affected, and a process that has called cuInit must not fork ranks later.
Standard library only, for both images. root: the root of the file system.
"""

import ctypes
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from berth.runtime import subprocesses
from berth.runtime.host_files import entries, read_text

TIME_LIMIT = 60.0  # seconds; cuInit takes one or two on eight GPUs, more if the driver has just been loaded
_ROOT = Path("/")
_LIBRARY = "libcuda.so.1"
_NAME_BYTES = 256
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_…

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: its name and its compute capability."""

    name: str
    capability: Version


@dataclass(frozen=True, slots=True)
class DriverState:
    """The detected driver.

    missing: why libcuda can't be loaded. fault: why the detection failed (it crashed, it hung). Both are empty if it
    succeeded. version: the newest CUDA that the driver supports. code: cuInit's result (0: success). name: the code's
    name. closed: device nodes that this process may not open; checked only if cuInit failed.
    """

    missing: str = ""
    fault: str = ""
    version: Version | None = None
    code: int | None = None
    name: str = ""
    closed: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()


def count_gpus(root: Path, environ: Mapping[str, str]) -> int:
    """The number of device nodes /dev/nvidia0, 1, … (WSL has one node); fewer if CUDA_VISIBLE_DEVICES names fewer.

    This is an estimate: only the driver knows MIG instances, UUIDs and lost GPUs (compatibility.usable_gpus).
    """
    # WSL2 has a single device for all GPUs of the machine (docs.nvidia.com/cuda/wsl-user-guide).
    nodes = len(_nodes(root)) or int((root / "dev/dxg").exists())
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return nodes
    return min(nodes, len([name for name in visible.split(",") if name.strip() and name.strip() != "-1"]))


def torch_cuda() -> str | None:
    """The CUDA version in torch's version file, because importing torch takes seconds; None without CUDA or torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = read_text(Path(spec.origin).with_name("version.py"))
    match = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match[1] if match else None


def detect(root: Path = _ROOT) -> DriverState:
    """Query libcuda in this process."""
    try:
        cuda = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return DriverState(missing=str(error))
    number = ctypes.c_int(0)
    known = cuda.cuDriverGetVersion(ctypes.byref(number)) == 0 and number.value > 0
    state = DriverState(version=(number.value // 1000, number.value % 1000 // 10) if known else None)
    code = int(cuda.cuInit(0))
    if code:
        return replace(state, code=code, name=_error_name(cuda, code), closed=_closed(root))
    count = ctypes.c_int(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return replace(state, code=0, devices=tuple(_device(cuda, index) for index in range(count.value)))


def detect_in_child(environ: Mapping[str, str] = os.environ, limit: float = TIME_LIMIT) -> DriverState:
    """`detect`, in a child process with this environment and `limit` seconds."""
    command = [sys.executable, "-P", "-m", "berth.runtime.gpu.driver"]
    try:
        done = subprocesses.run(command, limit, environ)
    except subprocess.TimeoutExpired:
        return DriverState(fault=f"did not answer within {limit:.0f} s")
    if done.returncode < 0:
        return DriverState(fault=f"crashed ({signal.Signals(-done.returncode).name})")
    try:
        return from_json(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, KeyError, TypeError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return DriverState(fault=f"gave no answer ({last})")


def from_json(fields: Mapping[str, Any]) -> DriverState:
    """The state in the JSON that this module prints."""
    version = fields["version"] and (fields["version"][0], fields["version"][1])
    devices = (Device(each["name"], (each["capability"][0], each["capability"][1])) for each in fields["devices"])
    return DriverState(**{**fields, "version": version, "closed": tuple(fields["closed"]), "devices": tuple(devices)})


def _device(cuda: ctypes.CDLL, index: int) -> Device:
    handle, major, minor = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGet(ctypes.byref(handle), index)
    cuda.cuDeviceGetName(name, _NAME_BYTES, handle)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, handle)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, handle)
    return Device(name.value.decode("utf-8", "replace"), (major.value, minor.value))


def _error_name(cuda: ctypes.CDLL, code: int) -> str:
    """The driver's name for a code: CUDA_ERROR_NO_DEVICE for 100; empty if it does not know the code."""
    text = ctypes.c_char_p()
    if cuda.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
        return text.value.decode("ascii", "replace")
    return ""


def _nodes(root: Path) -> list[Path]:
    return sorted(path for path in entries(root / "dev") if re.fullmatch(r"nvidia\d+", path.name))


def _closed(root: Path) -> tuple[str, ...]:
    closed = []
    nodes = [*_nodes(root), root / "dev/nvidiactl", root / "dev/nvidia-uvm"]
    wsl = root / "dev/dxg"
    for path in [wsl] if wsl.exists() else nodes:
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError as error:
            closed.append(f"{path}: {error.strerror}")
    return tuple(closed)


if __name__ == "__main__":
    print(json.dumps(asdict(detect())))
