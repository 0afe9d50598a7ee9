"""How much memory a model's worker needs, by its files, and what the files that it writes take of it."""

import os
from collections.abc import Iterator
from pathlib import Path

_WORKER = 160_000_000
_COPIES = 3.5
"""A worker takes so many bytes, and those of its model so often: the engine keeps each weight unpacked and twice
packed, for a full queue and for a lone request. Measured with models of 91 and 438 MB
(bench/results/2026-11-23-serve*.md)."""
_OWN_CODE = 300_000_000
"""What a handler takes that imports torch, at least."""
_IN_MEMORY = ("tmpfs", "ramfs")


def needed_memory(folder: Path) -> int:
    """Bytes that a worker for the model in this folder will take, estimated from its files; OSError if one vanishes or
    can't be read.
    """
    files = list(_files(folder))
    if any(path.parent.name == "code" and path.suffix == ".py" for path in files):
        return _OWN_CODE + sum(path.stat().st_size for path in files)
    weights = [path for path in files if path.suffix in (".safetensors", ".bin") and path.parent.name != "openvino"]
    return _WORKER + int(_COPIES * sum(path.stat().st_size for path in weights))


def is_in_memory(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether files in this folder take memory: /tmp of a container with a read-only root usually is a tmpfs."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.read_text("utf-8", "replace").splitlines():
        fields = line.split()
        if fields[2] == number:
            return fields[fields.index("-") + 1] in _IN_MEMORY
    return False


def taken_bytes(folder: Path) -> int:
    """Bytes that the files in this folder take on their file system; a file that vanishes meanwhile counts as none."""
    total = 0
    for path in _files(folder):
        try:
            total += 512 * path.lstat().st_blocks
        except FileNotFoundError:
            continue
    return total


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below the folder, and links to files; links to folders are not followed."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if path.is_file():
                yield path
