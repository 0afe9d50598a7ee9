"""Lets `import smdistributed` find berth's open implementation (smdistributed/) if AWS's wheel is missing.

The finder is last on sys.meta_path, so AWS's wheel is found first; if that has only one half (dataparallel or
modelparallel), the other comes from ours. BERTH_SMDISTRIBUTED changes this: `open` puts ours first, `aws` finds only
AWS's, and `off` neither. Therefore our folder is not on sys.path, where it would always be found. This module is loaded
in every Python of the training image, so it imports nothing else.

A script for version 2 of the model parallel library imports torch.sagemaker; if it is missing, the error says so.
"""

import sys

TYPE_CHECKING = False  # typing's own would cost each Python of the image 4 ms
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

VARIABLE = "BERTH_SMDISTRIBUTED"
PACKAGE = "smdistributed"
PARTS = tuple(f"{PACKAGE}.{part}" for part in ("dataparallel", "modelparallel", "gloo_threads", "ranks"))
VERSION_2 = "torch.sagemaker"
OPEN, OFF = "open", "off"
WITHOUT = ("aws", OFF)


def choice(environ: "Mapping[str, str]") -> str:
    """The value of BERTH_SMDISTRIBUTED in lower case; empty if it is not set."""
    return environ.get(VARIABLE, "").strip().lower()


def install(environ: "Mapping[str, str]") -> None:
    """Install the finder, once. An unknown value counts as none; the launch plan refuses it."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    mode = choice(environ)
    if mode in (OPEN, OFF):
        sys.meta_path.insert(0, Finder(mode))
    else:
        sys.meta_path.append(Finder(mode))


class Finder:
    """Finds the package and its direct submodules; Python finds the rest through their paths."""

    def __init__(self, mode: str = "", folder: str = "") -> None:
        self.mode = mode
        self.folder = folder or "/".join(__file__.split("/")[:-3])

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name == VERSION_2 and _importing() and _is_missing(name, path):
            raise ModuleNotFoundError(_NO_VERSION_2, name=name)
        if name != PACKAGE and name not in PARTS:
            return None
        if self.mode in WITHOUT:
            if _importing():
                raise ModuleNotFoundError(_refusal(name, self.mode), name=name)
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [self.folder if name == PACKAGE else f"{self.folder}/{PACKAGE}"])


_NO_VERSION_2 = (
    f"No module named {VERSION_2!r}: it is version 2 of SageMaker's model parallel library, which is not in this "
    "image; shard with torch's own FSDP, or use version 1: import smdistributed.modelparallel.torch as smp."
)


def _is_missing(name: str, path: "Sequence[str] | None") -> bool:
    from importlib.machinery import PathFinder

    return PathFinder.find_spec(name, path) is None


def _importing() -> bool:
    """Whether the module is being imported. importlib.util.find_spec only looks for it, and must not raise."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
        if frame.f_code.co_name == "_find_and_load_unlocked":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _refusal(name: str, mode: str) -> str:
    why = (
        f"{VARIABLE} is off, which disables AWS's wheel and berth's open implementation"
        if mode == OFF
        else f"AWS's wheel is not in this image, and {VARIABLE} is aws, which disables berth's open implementation"
    )
    return f"No module named {name!r}: {why}; unset {VARIABLE}, or set it to open."
