"""Whether a checkpoint can be written in the time that SageMaker leaves a job that it stops: measured at start."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import torch

LIMIT_SECONDS = 100.0
"""Of the 120 s between SIGTERM and SIGKILL: the step under way and the job's end take some as well."""
_PROBE = ".partial-speed"
_CHUNK = 1 << 20
_MOST_CHUNKS = 16
_MOST_SECONDS = 1.0


def checkpoint_bytes(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The weights, and the optimizer's two numbers for each that is trained, which Adam and its kind have."""
    trained = [weight for group in optimizer.param_groups for weight in group["params"]]
    return _bytes(model.parameters()) + 2 * _bytes(trained)


def _bytes(weights: Iterable[torch.Tensor]) -> int:
    return sum(weight.numel() * weight.element_size() for weight in weights)


def write_speed(folder: Path) -> float:
    """Bytes a second that a folder takes, by a file that is removed again. Raises OSError where none can be written."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / _PROBE
    chunk = os.urandom(_CHUNK)  # which no file system makes smaller
    written = 0
    began = time.monotonic()
    try:
        with probe.open("wb", buffering=0) as file:
            while written < _MOST_CHUNKS * _CHUNK and time.monotonic() < began + _MOST_SECONDS:
                written += file.write(chunk)
            os.fsync(file.fileno())
        return written / max(time.monotonic() - began, 1e-6)
    finally:
        probe.unlink(missing_ok=True)


def measured(folder: Path, size: int) -> tuple[float, str]:
    """How many seconds a checkpoint of `size` bytes takes there, and a line for the log if that is too long. Where none
    can be written 0, and a line that says so.
    """
    try:
        speed = write_speed(folder)
    except OSError as error:
        can_not = f"no checkpoint can be written to {folder} ({error.strerror})"
        return 0.0, f"warning: {can_not}: a job that is stopped begins again"
    return size / speed, too_slow(folder, size, speed)


def too_slow(folder: Path, size: int, speed: float) -> str:
    """The line for a checkpoint of `size` bytes at `speed` bytes a second; empty if it is written in time."""
    seconds = size / speed
    if seconds <= LIMIT_SECONDS:
        return ""
    return (
        f"warning: a checkpoint is about {size / 1e9:.1f} GB and takes {seconds:.0f} s at {speed / 1e6:.0f} MB/s, to "
        f"{folder}, where SageMaker leaves a stopped job 120 s: what a stop costs is what was trained since the last "
        "one, so set save_minutes lower, or use an instance with a faster disk"
    )
