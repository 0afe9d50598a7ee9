"""Checks before training or serving whether torch can run on this host's GPUs, and explains in one sentence why not.

If only the driver is too old and the image contains NVIDIA's cuda-compat (libraries of a newer driver that run on an
older kernel module), these are tried. If they work, this process executes itself again with them in LD_LIBRARY_PATH, so
that all its child processes use them too.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from berth.runtime.gpu import compatibility, driver
from berth.runtime.gpu.compatibility import UsableGpus

# Where the image puts cuda-compat. Not in NVIDIA's place, where NVIDIA's container runtime would apply its own rules.
COMPAT = Path("/usr/local/cuda-compat")
_HELD = (signal.SIGTERM, signal.SIGINT)


def check(
    cuda: str | None,
    gpus: int,
    say: Callable[[str], None],
    compat: Path = COMPAT,
    *,
    every: bool = True,
) -> UsableGpus:
    """Returns how many GPUs to use, or the error that prevents the start.

    cuda: torch's CUDA, None for a CPU build. gpus: the number of device nodes. every: whether all are needed. say: gets
    log lines. Does not return if cuda-compat helps: the program is executed again, with SIGTERM and SIGINT blocked
    until it calls `unblock_signals`.
    """
    if cuda is None:
        return UsableGpus(gpus)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not gpus:
        say(compatibility.no_gpu(cuda, driver.count_gpus(Path("/"), {}), visible))
        return UsableGpus(0)
    state = driver.detect_in_child(os.environ)
    sentence = compatibility.incompatibility(cuda, gpus, state)
    if sentence is None:
        usable = compatibility.usable_gpus(gpus, state, visible, every=every)
        if usable.line:
            say(usable.line)
        return usable
    newer = with_folder(compat, os.environ)
    if not compatibility.too_old(cuda, state) or newer is None:
        return UsableGpus(0, sentence)
    through = driver.detect_in_child(newer)
    if compatibility.incompatibility(cuda, gpus, through) is None:
        say(f"cuda-compat: the host's driver is too old for CUDA {cuda}, so {compat} is used instead")
        # The new program has no handlers at first, and process 1 of a container ignores signals without one. A blocked
        # signal stays pending, and the mask and pending signals survive execve.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], newer)
    return UsableGpus(0, compatibility.incompatibility(cuda, gpus, state, through))


def unblock_signals() -> None:
    """Deliver signals that came while the program was executed again.

    Every program that calls `check` calls this after setting handlers and before starting a child, which would inherit
    the mask.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def with_folder(compat: Path, environ: Mapping[str, str]) -> dict[str, str] | None:
    """The environment with `compat` before the driver's folder; None if `compat` is missing or already in the path."""
    before = environ.get("LD_LIBRARY_PATH", "")
    if str(compat) in before.split(":") or not (compat / "libcuda.so.1").exists():
        return None
    return {**environ, "LD_LIBRARY_PATH": f"{compat}:{before}" if before else str(compat)}
