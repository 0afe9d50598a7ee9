"""Sizes of the Python packages of an environment: a program of its own, run inside an image with the image's Python.

Standard library only, for it is handed to `python -c` in containers without network. Prints one JSON list of
[name, version, bytes, bytes gzipped], largest gzipped first. A package's files are those of its RECORD that exist.
"""

import json
import os
import sys
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

_CHUNK = 1 << 20


def measure(search_path: Iterable[str]) -> list[tuple[str, str, int, int]]:
    """(name, version, bytes, bytes gzipped) of every distribution on `search_path`, largest gzipped first."""
    found = list(metadata.distributions(path=list(search_path)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = pool.map(_sizes, found)
        rows = [(each.metadata["Name"], each.version, *size) for each, size in zip(found, sizes, strict=True)]
    return sorted(rows, key=lambda row: (-row[3], row[0]))


def _sizes(distribution: metadata.Distribution) -> tuple[int, int]:
    """Bytes of the distribution's files, plain and in one gzip stream of level 6 (its share of a layer, nearly)."""
    compressor = zlib.compressobj(6, wbits=31)
    plain = gzipped = 0
    for name in distribution.files or ():
        path = str(distribution.locate_file(name))
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as file:
                while chunk := file.read(_CHUNK):
                    plain += len(chunk)
                    gzipped += len(compressor.compress(chunk))
    return plain, gzipped + len(compressor.flush())


if __name__ == "__main__":
    json.dump(measure(sys.path), sys.stdout)
