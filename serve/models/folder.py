"""A model's folder: where it may be loaded from, how much memory it needs, and where its worker writes.

Models share a container, so each worker gets its own folder for temporary files, for its graph and for a model's
modules: two folders called `model` may contain different modules of the same name.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.contract.model_files import model_homes
from berth.runtime.engines.choose import FOLDER_VARIABLE
from berth.serve.errors import Kind, ServeError


def find_folder(url: str, roots: Sequence[Path]) -> Path:
    """The folder that `url` names; ServeError (400) if it holds no model. Links are followed, but not out of `roots`,
    whose own links must be resolved.
    """
    not_below_roots = f"it must be a folder below {' or '.join(map(str, roots))}"
    try:
        folder = Path(url).resolve()
        fault = _fault_of(folder) if any(folder.is_relative_to(root) for root in roots) else not_below_roots
    except OSError as error:
        fault = f"it can't be read ({(error.strerror or type(error).__name__).lower()})"
    except (ValueError, RuntimeError):  # a NUL in it; a loop of links
        fault = not_below_roots
    if fault:
        raise ServeError(Kind.BAD_REQUEST, f"`url` is `{url[:80]}`: {fault}")
    return folder


def _fault_of(folder: Path) -> str:
    if not folder.exists():
        return "there is no such folder"
    if not folder.is_dir():
        return "it is not a folder: unpack an archive, and send the folder that holds the model's files"
    if model_homes(folder) or any(path.suffix == ".py" for path in _files(folder)):
        return ""
    return "neither it nor a folder in it has a config.json or code/inference.py: unpack the archive of one model there"


def make_scratch(parent: Path) -> Path:
    """A new folder for each load, so that a model never finds files of an earlier load. OSError if it can't be made."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    (folder / "tmp").mkdir()
    return folder


def worker_environment(folder: Path) -> dict[str, str]:
    """Variables that make a worker write into its folder: temporary files, the graph that it makes, and the modules of
    a model with `trust_remote_code`, which transformers stores under the name of the model's folder.
    """
    own = {"TMPDIR": folder / "tmp", FOLDER_VARIABLE: folder / "graph", "HF_MODULES_CACHE": folder / "modules"}
    return {name: str(path) for name, path in own.items()}


_WORKER_BYTES = 160_000_000
_WEIGHT_COPIES = 3.5
"""Memory of a worker: _WORKER_BYTES + _WEIGHT_COPIES × the size of the weights. The engine keeps each weight unpacked,
and packed twice: for a full queue and for a single request. Measured with models of 91 and 438 MB
(bench/results/2026-11-23-serve*.md)."""
_HANDLER_BYTES = 300_000_000
"""The least memory of a handler that imports torch."""


def needed_memory(folder: Path) -> int:
    """Estimated bytes of memory of a worker for this model; OSError if a file vanishes or can't be read."""
    files = list(_files(folder))
    if any(path.parent.name == "code" and path.suffix == ".py" for path in files):
        return _HANDLER_BYTES + sum(path.stat().st_size for path in files)
    weights = [path for path in files if path.suffix in (".safetensors", ".bin") and path.parent.name != "openvino"]
    return _WORKER_BYTES + int(_WEIGHT_COPIES * sum(path.stat().st_size for path in weights))


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below the folder, and links to files; links to folders are not followed. OSError for a folder that
    can't be read.
    """
    for parent, _, names in os.walk(folder, onerror=_fail):
        for name in names:
            path = Path(parent, name)
            if path.is_file():
                yield path


def _fail(error: OSError) -> None:
    raise error
