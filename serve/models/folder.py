"""A model's folder: where it may be loaded from, how much memory it needs, and where its worker writes.

Models share a container but no files in it that are found by name: two models may need different versions of a package,
and two folders called `model` may contain a module of the same name.
"""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.contract.model_files import model_homes
from berth.runtime.engines.choose import FOLDER_VARIABLE


def find_folder(url: str, roots: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder that `url` names, and its faults; use it only if there are none. Links are followed, but not out of
    `roots`, whose own links must be resolved.
    """
    below = " or ".join(map(str, roots))
    shown = url[:80]
    try:
        folder = Path(url).resolve()
        if not any(folder.is_relative_to(root) for root in roots):
            return folder, [f"`url` is `{shown}`: it must be a folder below {below}"]
        if not folder.is_dir():
            return folder, [f"`url` is `{shown}`: {_not_a_folder(folder)}"]
        return folder, [f"`url` is `{shown}`, {fault}" for fault in _content_faults(folder)]
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        return Path("/"), [f"`url` is `{shown}`: it can't be read ({reason}); it must be a folder below {below}"]
    except (ValueError, RuntimeError):  # a NUL in it; a loop of links
        return Path("/"), [f"`url` is `{shown}`: it must be a folder below {below}"]


def _not_a_folder(path: Path) -> str:
    if not path.exists():
        return "there is no such folder"
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return "it is an archive: unpack it, and send the folder that it is unpacked into"
    return "it is a file: send the folder that the model's files are in"


def _content_faults(folder: Path) -> list[str]:
    if model_homes(folder) or any(path.suffix == ".py" for path in _files(folder)):
        return []
    archive = next(iter(sorted(folder.glob("*.tar.gz"))), None)
    if archive is not None:
        return [f"which holds {archive.name} but no config.json and no code: unpack the archive there"]
    return [
        "which has no config.json, nor has a folder in it: pack the files of one model into model.tar.gz, or code of "
        "its own as code/inference.py"
    ]


def make_scratch(parent: Path) -> Path:
    """A new folder for each load, so that a model never finds files of an earlier load. OSError if it can't be made."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    (folder / "tmp").mkdir()
    return folder


def worker_environment(folder: Path) -> dict[str, str]:
    """Variables that make a worker write into its folder: packages, temporary files, the graph that it makes, and the
    modules of a model with `trust_remote_code`, which transformers stores under the name of the model's folder.
    """
    own = {"TMPDIR": folder / "tmp", FOLDER_VARIABLE: folder / "graph", "HF_MODULES_CACHE": folder / "modules"}
    return {name: str(path) for name, path in own.items()}


_WORKER = 160_000_000
_COPIES = 3.5
"""Memory of a worker: _WORKER bytes + _COPIES × the size of the weights. The engine keeps each weight unpacked, and
packed twice: for a full queue and for a single request. Measured with models of 91 and 438 MB
(bench/results/2026-11-23-serve*.md)."""
_OWN_CODE = 300_000_000
"""The least memory of a handler that imports torch."""


def needed_memory(folder: Path) -> int:
    """Estimated bytes of memory of a worker for this model; OSError if a file vanishes or can't be read."""
    files = list(_files(folder))
    if any(path.parent.name == "code" and path.suffix == ".py" for path in files):
        return _OWN_CODE + sum(path.stat().st_size for path in files)
    weights = [path for path in files if path.suffix in (".safetensors", ".bin") and path.parent.name != "openvino"]
    return _WORKER + int(_COPIES * sum(path.stat().st_size for path in weights))


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
