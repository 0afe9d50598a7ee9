"""The bill of materials of an image: its Debian and Python packages, and what is neither, as CycloneDX 1.6 JSON. Pure.

syft finds the packages, in the records that inside.py has read; `completed` adds what syft lacks. Measured on
berth-serve:cpu, 173 packages: in both formats syft gives a version and a purl of each, a hash of none, and no licence
of 6 (SPDX: 9); SPDX adds 4,198 files of Debian's, in 3.7 MB. CycloneDX is written, and from the image itself come

- a hash of each package: the sha256 of the text that `sha256sum` prints for its files as they are in the image, sorted
  by path. PyPI's or Debian's own hash is of an archive that no image holds, and whose files the build prunes;
- licences as SPDX expressions (spdx.py);
- what came as a file of docker/pins.toml, with the sha256 of that file, and the kit, which is on no index.
"""

import hashlib
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packageurl import PackageURL

from berth.images import pins
from berth.images.inventory import spdx
from berth.images.inventory.image_listing import Inside, resolved

_DPKG = "var/lib/dpkg/status"
_DEB = "pkg:deb/"
_KIT = "berth"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "berth.bill-of-materials")


@dataclass(frozen=True, slots=True)
class Package:
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
class Bill:
    """What an image holds, by kind and name, and the same as a CycloneDX document."""

    image: str
    image_id: str
    packages: tuple[Package, ...]
    document: Mapping[str, Any]


def completed(inside: Inside, document: Mapping[str, Any], files: Mapping[str, pins.PinnedFile]) -> Bill:
    """syft's document with what it lacks, and without what differs between two runs or is only a guess (CPEs).

    files: those of docker/pins.toml by key, such as efa-1.47.0; which of them are inside, the image's labels say.
    """
    removed = _removed(inside.records.get(_DPKG, b""))
    listed = document.get("components", [])
    found = [each for each in listed if each.get("purl")]
    found = [each for each in found if not (each["purl"].startswith(_DEB) and each["name"] in removed)]
    things = [(_package(inside, each), _publisher(each)) for each in found]
    things += [(package, _distribution(file)) for package, file in _files(inside.labels, files)]
    packages = [package for package, _ in things]
    references = _references(packages)
    components = [
        _component(package, reference) | more for (package, more), reference in zip(things, references, strict=True)
    ]
    renamed = dict(zip((each["bom-ref"] for each in found), references, strict=False))
    order = sorted(range(len(packages)), key=lambda number: _order(packages[number]))
    depends = [
        {"ref": renamed[each["ref"]], "dependsOn": sorted(renamed[on] for on in each["dependsOn"] if on in renamed)}
        for each in document.get("dependencies", [])
        if each["ref"] in renamed and each.get("dependsOn")
    ]
    systems = [
        {key: value for key, value in each.items() if key not in ("cpe", "swid", "externalReferences", "properties")}
        for each in listed
        if each.get("type") == "operating-system"
    ]
    complete = {
        "$schema": document["$schema"],
        "bomFormat": document["bomFormat"],
        "specVersion": document["specVersion"],
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, inside.image_id)}",
        "version": 1,
        "metadata": _metadata(inside, document),
        "components": [*systems, *(components[number] for number in order)],
        "dependencies": sorted(depends, key=lambda each: str(each["ref"])),
    }
    return Bill(inside.image, inside.image_id, tuple(packages[number] for number in order), complete)


def _package(inside: Inside, component: Mapping[str, Any]) -> Package:
    """A package that syft found, with its hash and licence out of the image."""
    name, version = str(component["name"]), str(component.get("version", ""))
    locations = [
        str(each["value"]).lstrip("/")
        for each in component.get("properties", [])
        if each["name"].startswith("syft:location:") and each["name"].endswith(":path")
    ]
    named = [_licence_name(each) for each in component.get("licenses", [])]
    if str(component["purl"]).startswith(_DEB):
        path = next((each for each in locations if each.startswith("var/lib/dpkg/status")), "")
        copyright_file = resolved(inside.links, f"usr/share/doc/{name}/copyright")
        licence = spdx.of_debian(named, inside.records.get(copyright_file, b""))
        return Package(
            name, version, "deb", licence, _hash(inside, _listed_by_dpkg(inside, name)), str(component["purl"]), path
        )
    path = next((each for each in locations if each.endswith(("/METADATA", "/PKG-INFO", ".egg-info"))), "")
    licence = spdx.of_python(inside.records.get(path, b""), named)
    # On no index: under the purl of PyPI it would be taken for whatever has that name there.
    purl = PackageURL("generic", None, name, version).to_string() if name == _KIT else str(component["purl"])
    return Package(name, version, "python", licence, _hash(inside, _listed_by_record(inside, path)), purl, path)


def _removed(status: bytes) -> set[str]:
    """The packages that dpkg knows of for their settings alone, though they were removed; syft lists them too."""
    state = re.compile(rb"^Status: .* (config-files|not-installed)$", re.MULTILINE)
    gone = [stanza for stanza in status.split(b"\n\n") if state.search(stanza)]
    return {found[1].decode() for stanza in gone if (found := re.search(rb"^Package: (\S+)$", stanza, re.MULTILINE))}


def _licence_name(licence: Mapping[str, Any]) -> str:
    inner = licence.get("license", {})
    return str(licence.get("expression") or inner.get("id") or inner.get("name") or "")


def _listed_by_dpkg(inside: Inside, name: str) -> Iterator[str]:
    """The paths that dpkg has of a package, one for several architectures with its architecture in the file's name."""
    info = "var/lib/dpkg/info/"
    for listing in (f"{info}{name}.list", f"{info}{name}:amd64.list"):
        for line in inside.records.get(listing, b"").decode(errors="surrogateescape").splitlines():
            yield resolved(inside.links, line)


def _listed_by_record(inside: Inside, metadata: str) -> Iterator[str]:
    """The paths of a distribution's RECORD (PEP 376), whose lines are relative to the folder above it."""
    folder = os.path.dirname(metadata)
    for line in inside.records.get(f"{folder}/RECORD", b"").decode(errors="surrogateescape").splitlines():
        # A path with a comma stands in quotes; neither hash nor size ever has one.
        path = line.rsplit(",", 2)[0].strip('"')
        yield resolved(inside.links, os.path.normpath(f"/{os.path.dirname(folder)}/{path}"))


def _hash(inside: Inside, paths: Iterator[str]) -> str:
    """The sha256 of `sha256sum`'s lines for those of the paths that are files, sorted by path; empty without one."""
    found = {path: inside.hashes[path] for path in paths if path in inside.hashes}
    if not found:
        return ""
    lines = "".join(f"{found[path]}  /{path}\n" for path in sorted(found))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def _files(
    labels: Mapping[str, str], files: Mapping[str, pins.PinnedFile]
) -> list[tuple[Package, pins.PinnedFile | None]]:
    """What came as a file, by the labels of the image: EFA's installer, SMDDP, GDRCopy and cuda-compat."""
    found: list[tuple[Package, pins.PinnedFile | None]] = []
    for part in pins.FILE_PARTS["train"]:
        version = labels.get(f"berth.{part}", pins.NONE)
        if version == pins.NONE:
            continue
        file = files.get(f"{part}-{version}")
        sha256 = file.sha256 if file is not None and file.sha256 != pins.UNPINNED else ""
        purl = PackageURL("generic", None, part, version).to_string()
        licence = f"{spdx.REFERENCE}NVIDIA-Proprietary" if part == "cuda-compat" else ""
        found.append((Package(part, version, "file", licence, sha256, purl, ""), file))
    return found


def _publisher(component: Mapping[str, Any]) -> dict[str, Any]:
    name = component.get("publisher") or component.get("author")
    return {"publisher": name} if name else {}


def _distribution(file: pins.PinnedFile | None) -> dict[str, Any]:
    return {"externalReferences": [{"type": "distribution", "url": file.url}]} if file is not None and file.url else {}


def _references(packages: Sequence[Package]) -> list[str]:
    """A name of each within the document: its purl, with the record's path where the image has it twice."""
    times = Counter(package.purl for package in packages)
    return [package.purl if times[package.purl] == 1 else f"{package.purl}#{package.path}" for package in packages]


def _component(package: Package, reference: str) -> dict[str, Any]:
    """One component of CycloneDX; without the keys that it has nothing for."""
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
    return {**component, "properties": properties}


def _metadata(inside: Inside, document: Mapping[str, Any]) -> dict[str, Any]:
    """What the bill is of, and what made it; the image's own moment stands for that of the bill."""
    tools = document.get("metadata", {}).get("tools", {})
    title = inside.labels.get("berth.kit", "")
    version = inside.labels.get("org.opencontainers.image.version", "")
    properties = {
        "berth:hashes": "of a package: sha256 of sha256sum's lines for its files in the image, sorted by path",
        "berth:image-id": inside.image_id,
        **{f"berth:label:{name}": value for name, value in inside.labels.items()},
    }
    return {
        "timestamp": inside.created,
        "tools": tools,
        "component": {
            "type": "container",
            "bom-ref": inside.image_id,
            "name": f"{_KIT}-{title}" if title else inside.image_id,
            **({"version": version} if version else {}),
        },
        "properties": [{"name": name, "value": value} for name, value in sorted(properties.items())],
    }


def _order(package: Package) -> tuple[str, str, str, str]:
    return package.kind, package.name.lower(), package.version, package.path
