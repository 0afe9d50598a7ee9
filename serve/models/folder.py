"""Which folder a model may be loaded from: one below the roots, with a model or code in it."""

import os
from collections.abc import Sequence
from pathlib import Path

from berth.contract.model_files import model_homes


def find_folder(url: str, roots: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder that `url` leads to, and what is wrong with it; use it only if nothing is. Links are followed, but not
    out of `roots`, which must be resolved.
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
    if model_homes(folder) or _has_code(folder):
        return []
    archive = next(iter(sorted(folder.glob("*.tar.gz"))), None)
    if archive is not None:
        return [f"which holds {archive.name} but no config.json and no code: unpack the archive there"]
    return [
        "which has no config.json, nor has a folder in it: pack the files of one model into model.tar.gz, or code of "
        "its own as code/inference.py"
    ]


def _has_code(folder: Path) -> bool:
    """Not by Path.rglob, which passes over folders that can't be read."""

    def fail(error: OSError) -> None:
        raise error

    return any(name.endswith(".py") for _, _, names in os.walk(folder, onerror=fail) for name in names)
