"""What a bill of materials names: packages, each with the hash of its files as they are in the image. Pure.

The hash of a package is the sha256 of the text that `sha256sum` prints for its files, sorted by path. PyPI's or
Debian's own hash is of an archive that no image holds, and whose files the build prunes.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from berth.images.inspect.image_listing import ImageListing


@dataclass(frozen=True, slots=True)
class BillPackage:
    """One thing that the image holds. kind: deb, python, or file for what came as a file of docker/pins.toml.

    licence: an SPDX expression, empty where none is known. hash: a sha256, empty where nothing of it is left to hash.
    path: the record of it in the image, empty for a file.
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
    """A package, and what a document says of it besides.

    provides: the names that others mean it by, its own among them; requires: the names that it means others by. Names
    are those of one kind of package. where: the folder that it stands in, for packages that an image has twice.
    """

    package: BillPackage
    publisher: str = ""
    url: str = ""
    provides: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    where: str = ""


def hash_of(listing: ImageListing, paths: Iterable[str]) -> str:
    """The sha256 of `sha256sum`'s lines for those of the paths that are files, sorted by path; empty without one."""
    found = {path: listing.hashes[path] for path in paths if path in listing.hashes}
    if not found:
        return ""
    lines = "".join(f"{found[path]}  /{path}\n" for path in sorted(found))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()
