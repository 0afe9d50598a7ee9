"""The packages of a bill of materials, each with a hash of its files in the image. Pure.

The hash is the sha256 of the output of `sha256sum` for the package's files, sorted by path. PyPI's and Debian's hashes
are of archives that the image does not contain, and the build removes some of their files.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from berth.images.inspect.image_listing import ImageListing


@dataclass(frozen=True, slots=True)
class BillPackage:
    """One package of the image. kind: deb, python, or file for the files of docker/pins.toml.

    licence: an SPDX expression, empty if unknown. hash: a sha256, empty if none of its files is left. path: its record
    in the image, empty for a file.
    """

    name: str
    version: str
    kind: str
    licence: str
    hash: str
    purl: str
    path: str


@dataclass(frozen=True, slots=True)
class FoundPackage:
    """A package with its publisher and its URL, for the document."""

    package: BillPackage
    publisher: str = ""
    url: str = ""


def hash_of(listing: ImageListing, paths: Iterable[str]) -> str:
    """The sha256 of `sha256sum`'s lines for those of the paths that are files, sorted by path; empty if there are
    none."""
    found = {path: listing.hashes[path] for path in paths if path in listing.hashes}
    if not found:
        return ""
    lines = "".join(f"{found[path]}  /{path}\n" for path in sorted(found))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
