"""Measures the Python packages of an environment: a program that runs in an image with the image's Python.

Standard library only, because it is passed to `python -c` in containers without network. Prints one JSON list of [name,
version, bytes, bytes gzipped]. A package's files are those in its RECORD that exist.
"""

import json
import os
import sys
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

_CHUNK = 1 << 20
Row = tuple[str, str, int, int]


def measure(search_path: Iterable[str]) -> list[Row]:
    """(name, version, bytes, bytes gzipped) of every distribution on `search_path`, in the order of names."""
    found = list(metadata.distributions(path=list(search_path)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return sorted(pool.map(_row, found))


def _row(distribution: metadata.Distribution) -> Row:
    paths = [str(distribution.locate_file(name)) for name in distribution.files or ()]
    paths = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    return (distribution.metadata["Name"], distribution.version, *_sizes(paths))


def _sizes(paths: Iterable[str]) -> tuple[int, int]:
    """Bytes of files, plain and as one gzip stream of level 6, which is about their share of a layer."""
    compressor = zlib.compressobj(6, wbits=31)
    plain = gzipped = 0
    for path in paths:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                plain += len(chunk)
                gzipped += len(compressor.compress(chunk))
    return plain, gzipped + len(compressor.flush())


if __name__ == "__main__":
    json.dump(measure(sys.path), sys.stdout)
