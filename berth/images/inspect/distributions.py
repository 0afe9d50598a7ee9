"""Finds an image's Python packages in the metadata of its distributions. Pure."""

import os
import re
from collections.abc import Iterator

from packageurl import PackageURL
from packaging.metadata import RawMetadata, parse_email
from packaging.utils import canonicalize_name

from berth.images.inspect import spdx
from berth.images.inspect.image_listing import ImageListing, resolved
from berth.images.inspect.packages import BillPackage, FoundPackage, hash_of

BERTH = "berth"
_METADATA = re.compile(r"(.+/)?[^/]+(\.dist-info/METADATA|\.egg-info/PKG-INFO|\.egg-info)")


def python_packages(listing: ImageListing) -> list[FoundPackage]:
    """The distributions in all folders, including vendored ones (_vendor)."""
    found = [(path, parse_email(record)[0]) for path, record in listing.records.items() if _METADATA.fullmatch(path)]
    return [_package(listing, path, fields) for path, fields in found if fields.get("name") and fields.get("version")]


def _package(listing: ImageListing, path: str, fields: RawMetadata) -> FoundPackage:
    name, version = canonicalize_name(fields["name"]), fields["version"]
    # berth is not on PyPI: with a PyPI purl it would be mistaken for another project of that name.
    kind = "generic" if name == BERTH else "pypi"
    texts = map(spdx.text_licence, _licence_files(listing, path, fields))
    package = BillPackage(
        name,
        version,
        "python",
        spdx.python_licence(listing.records[path], texts),
        hash_of(listing, _files(listing, path)),
        PackageURL(kind, None, name, version).to_string(),
        path,
    )
    return FoundPackage(package, _author(fields))


def _author(fields: RawMetadata) -> str:
    """`Name <address>`, or only one of them if the metadata has only one."""
    name, address = fields.get("author", ""), fields.get("author_email", "")
    return f"{name} <{address}>" if name and address else name or address


def _licence_files(listing: ImageListing, path: str, fields: RawMetadata) -> Iterator[bytes]:
    """The licence files that the metadata names: next to it, or in `licenses` since PEP 639."""
    folder = os.path.dirname(path)
    for name in fields.get("license_files", []):
        yield listing.records.get(f"{folder}/licenses/{name}", listing.records.get(f"{folder}/{name}", b""))


def _files(listing: ImageListing, metadata: str) -> Iterator[str]:
    """The paths of a distribution's RECORD (PEP 376), whose lines are relative to the folder above it."""
    folder = os.path.dirname(metadata)
    for line in listing.records.get(f"{folder}/RECORD", b"").decode(errors="surrogateescape").splitlines():
        # A path with a comma is quoted; hash and size have no commas.
        path = line.rsplit(",", 2)[0].strip('"')
        yield resolved(listing.links, os.path.normpath(f"/{os.path.dirname(folder)}/{path}"))
