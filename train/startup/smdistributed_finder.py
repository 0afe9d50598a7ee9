"""Has `import smdistributed` find the kit's open implementation (berth/smdistributed) if AWS's wheel is missing.

The folder is nowhere on sys.path: programs ask whether there is a `smdistributed` (transformers does), and an image
that had it there would answer for AWS's. The finder is last on sys.meta_path, so that a wheel of AWS's goes first; of
one that has one half only, the other comes from ours. BERTH_SMDISTRIBUTED changes that: `open` puts ours first, `aws`
leaves ours out, and `off` both. It is loaded in every Python of the training image, and so imports nothing.
"""

import sys

TYPE_CHECKING = False  # typing's own would cost each Python of the image 4 ms
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

VARIABLE = "BERTH_SMDISTRIBUTED"
PACKAGE = "smdistributed"
PARTS = tuple(f"{PACKAGE}.{part}" for part in ("dataparallel", "modelparallel", "ranks"))
OPEN, OFF = "open", "off"
WITHOUT = ("aws", OFF)


def choice(environ: "Mapping[str, str]") -> str:
    """What BERTH_SMDISTRIBUTED says; empty where it says nothing."""
    return environ.get(VARIABLE, "").strip().lower()


def install(environ: "Mapping[str, str]") -> None:
    """Put the finder in its place, once; of a value that there is not, which the launch plan refuses, as of none."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    chosen = choice(environ)
    if chosen in (OPEN, OFF):
        sys.meta_path.insert(0, Finder(chosen))
    else:
        sys.meta_path.append(Finder(chosen))


class Finder:
    """Finds the package and what is directly in it; all below Python finds by the paths of these."""

    def __init__(self, chosen: str = "", folder: str = "") -> None:
        self.chosen = chosen
        self.folder = folder or "/".join(__file__.split("/")[:-3])

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != PACKAGE and name not in PARTS:
            return None
        if self.chosen in WITHOUT:
            if _importing():
                raise ModuleNotFoundError(_refusal(name, self.chosen), name=name)
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [self.folder if name == PACKAGE else f"{self.folder}/{PACKAGE}"])


def _importing() -> bool:
    """Whether the module is to be imported, and not only asked for (importlib.util.find_spec), which must not raise."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
        if frame.f_code.co_name == "_find_and_load_unlocked":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _refusal(name: str, chosen: str) -> str:
    why = (
        f"{VARIABLE} is off, which leaves out AWS's wheel and the kit's open implementation"
        if chosen == OFF
        else f"AWS's wheel is not in this image, and {VARIABLE} is aws, which leaves out the kit's open implementation"
    )
    return f"No module named {name!r}: {why}; unset {VARIABLE}, or set it to open."
