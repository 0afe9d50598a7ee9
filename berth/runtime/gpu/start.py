"""Before an image trains or serves: can its torch run on this host's GPUs? If not, why, in one sentence.

Where only the driver is too old and the image holds NVIDIA's cuda-compat, the libraries of a newer driver that run on
an older kernel module, they are tried and, if they work, taken: by this process, which starts itself again with them in
LD_LIBRARY_PATH, so that everything it starts has them too.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from berth.runtime.gpu import compatibility, driver
from berth.runtime.gpu.compatibility import UsableGpus

# Where the image puts cuda-compat; another place than NVIDIA's, whose runtime would use it by rules of its own.
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
    """How many GPUs to use, or the sentence that forbids to go on. `cuda` is torch's, None for a CPU build; `gpus`
    counts device nodes, and `every` says that all of them are needed.

    Does not return where cuda-compat helps: the same program then begins again, with SIGTERM and SIGINT held back until
    it calls `unblock_signals`. `say` gets a line for the log.
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
        found = compatibility.usable_gpus(gpus, state, visible, every=every)
        if found.line:
            say(found.line)
        return found
    newer = with_folder(compat, os.environ)
    if not compatibility.too_old(cuda, state) or newer is None:
        return UsableGpus(0, sentence)
    through = driver.detect_in_child(newer)
    if compatibility.incompatibility(cuda, gpus, through) is None:
        say(f"cuda-compat: the host's driver is too old for CUDA {cuda}, and {compat} does in its place")
        # The new program has no handlers yet, and process 1 of a container ignores a signal without one. A signal that
        # is blocked waits, and both the mask and what waits outlive execve.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], newer)
    return UsableGpus(0, compatibility.incompatibility(cuda, gpus, state, through))


def unblock_signals() -> None:
    """Let through what came while this program began again; for every program that calls `check`, once it has handlers
    and before it starts a child, which would inherit the mask.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)


def with_folder(compat: Path, environ: Mapping[str, str]) -> dict[str, str] | None:
    """The environment in which `compat` comes before the driver's own folder; None if there is none, or it does so."""
    before = environ.get("LD_LIBRARY_PATH", "")
    if str(compat) in before.split(":") or not (compat / "libcuda.so.1").exists():
        return None
    return {**environ, "LD_LIBRARY_PATH": f"{compat}:{before}" if before else str(compat)}
