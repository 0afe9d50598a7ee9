"""What a model's worker writes: in a folder of its own, which is removed when the model is unloaded.

Models share a container, but nothing that is found by its name in it: two models may ask for other versions of one
package, and two folders called `model` may bring a module of the same name.
"""

import shutil
from pathlib import Path

from berth.runtime.engines.choose import FOLDER_VARIABLE


class Scratch:
    """Folders below `parent`, each used once: a model that is loaded again never finds what was there before."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._count = 0

    def make(self) -> Path:
        """A new folder; OSError if it can't be made."""
        self._count += 1
        folder = self._parent / str(self._count)
        (folder / "tmp").mkdir(parents=True)
        return folder


def worker_environment(folder: Path) -> dict[str, str]:
    """The variables with which a worker writes into its folder: packages and temporary files, the graph that it makes,
    and the modules that transformers copies from a model with `trust_remote_code` by the name of the model's folder.
    """
    own = {"TMPDIR": folder / "tmp", FOLDER_VARIABLE: folder / "graph", "HF_MODULES_CACHE": folder / "modules"}
    return {name: str(path) for name, path in own.items()}


def remove(folder: Path) -> None:
    """Remove a folder of `Scratch`."""
    shutil.rmtree(folder, ignore_errors=True)
