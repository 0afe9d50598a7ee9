"""Sizes of the Python packages of an environment: a program of its own, run inside an image with the image's Python.

Standard library only, for it is handed to `python -c` in containers without network. Its arguments are the keys of
packages whose sizes are known. Prints one JSON list of [name, version, key, bytes, bytes gzipped], with null for both
sizes of a known one. A package's files are those of its RECORD that exist; its key is a hash of that record and of
their sizes.
"""

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata

_CHUNK = 1 << 20
Row = tuple[str, str, str, int | None, int | None]


def measure(search_path: Iterable[str], known: Collection[str] = ()) -> list[Row]:
    """(name, version, key, bytes, bytes gzipped) of every distribution on `search_path`, in the order of names."""
    found = list(metadata.distributions(path=list(search_path)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(partial(_row, known), found))
    return sorted(rows, key=lambda row: row[:3])


def _row(known: Collection[str], distribution: metadata.Distribution) -> Row:
    paths = [str(distribution.locate_file(name)) for name in distribution.files or ()]
    paths = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    record = distribution.read_text("RECORD") or ""
    content = record + "".join(f"{path} {os.path.getsize(path)}\n" for path in paths)
    key = hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()[:16]
    sizes = (None, None) if key in known else _sizes(paths)
    return (distribution.metadata["Name"], distribution.version, key, *sizes)


def _sizes(paths: Iterable[str]) -> tuple[int, int]:
    """Bytes of files, plain and in one gzip stream of level 6 (their share of a layer, nearly)."""
    compressor = zlib.compressobj(6, wbits=31)
    plain = gzipped = 0
    for path in paths:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                plain += len(chunk)
                gzipped += len(compressor.compress(chunk))
    return plain, gzipped + len(compressor.flush())


if __name__ == "__main__":
    json.dump(measure(sys.path, set(sys.argv[1:])), sys.stdout)
