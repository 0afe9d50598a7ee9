"""Before an image trains or serves: can its torch run on this host's GPUs? If not, why, in one sentence.

Where only the driver is too old and the image holds NVIDIA's cuda-compat, the libraries of a newer driver that run on
an older kernel module, they are tried and, if they work, taken: by this process, which starts itself anew with them in
LD_LIBRARY_PATH, so that everything it starts has them too.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from berth.gpu import driver, verdict

# Where the image puts cuda-compat; another place than NVIDIA's, whose runtime would use it by rules of its own.
COMPAT = Path("/usr/local/cuda-compat")


def check(
    cuda: str | None,
    gpus: int,
    say: Callable[[str], None],
    compat: Path = COMPAT,
    environ: Mapping[str, str] = os.environ,
) -> str | None:
    """The sentence that forbids to go on, None if there is none. `cuda` is torch's, None for a CPU build; `gpus` counts
    device nodes.

    Does not return where cuda-compat helps: the same program then begins again. `say` gets a line for the log.
    """
    if cuda is None:
        return None
    if not gpus:
        say(f"no GPU is at hand: torch for CUDA {cuda} runs on the CPU (docker run --gpus all passes GPUs in)")
        return None
    seen = driver.ask(environ)
    sentence = verdict.verdict(cuda, gpus, seen)
    newer = with_folder(compat, environ)
    if sentence is None or not verdict.too_old(cuda, seen) or newer is None:
        return sentence
    through = driver.ask(newer)
    if verdict.verdict(cuda, gpus, through) is None:
        say(f"cuda-compat: the host's driver is too old for CUDA {cuda}, and {compat} does in its place")
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], newer)
    return verdict.verdict(cuda, gpus, seen, through)


def with_folder(compat: Path, environ: Mapping[str, str]) -> dict[str, str] | None:
    """The environment in which `compat` comes before the driver's own folder; None if there is none, or it does so."""
    before = environ.get("LD_LIBRARY_PATH", "")
    if str(compat) in before.split(":") or not (compat / "libcuda.so.1").exists():
        return None
    return {**environ, "LD_LIBRARY_PATH": f"{compat}:{before}" if before else str(compat)}
