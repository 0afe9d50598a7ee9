"""The bill of materials of a built image: its Debian and Python packages, and what is neither, as CycloneDX 1.6 JSON.

syft finds the packages, in the records that contents.py reads out of the image: no second copy of the image on disk,
no network, and the same image gives the same bytes. `completed` (pure) adds what syft lacks. Measured on
berth-serve:cpu, 173 packages: in both formats syft gives a version and a purl of each, a hash of none, and no licence
of 6 (SPDX: 9); SPDX adds 4,198 files of Debian's, in 3.7 MB. CycloneDX is written, and from the image itself come

- a hash of each package: the sha256 of the text that `sha256sum` prints for its files as they are in the image, sorted
  by path. PyPI's or Debian's own hash is of an archive that no image holds, and whose files the build prunes;
- licences as SPDX expressions (spdx.py);
- what came as a file of docker/pins.toml, with the sha256 of that file, and the kit, which is on no index.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient
from packageurl import PackageURL

from berth.images import disk, pins, spdx
from berth.images.contents import Contents, contents, resolved
from berth.images.errors import UserError

CATALOGERS = "dpkg-db-cataloger,python-installed-package-cataloger"
_DPKG = "var/lib/dpkg/status"
_DEB = "pkg:deb/"
_TIMEOUT_S = 300
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


def bill(
    client: DockerClient,
    image: str,
    *,
    files: Mapping[str, pins.File] | None = None,
    cache: Path | None = None,
    step: Callable[[str], None] = lambda done: None,
) -> Bill:
    """The bill of an image on the engine; UserError without such an image, and without syft.

    files: those of docker/pins.toml by key (default: read there); cache, step: as in `contents`.
    """
    return bill_of(contents(client, image, cache=cache, step=step), files=files, step=step)


def bill_of(
    inside: Contents, *, files: Mapping[str, pins.File] | None = None, step: Callable[[str], None] = lambda done: None
) -> Bill:
    """The same of an image whose contents are read already."""
    step(f"{inside.image}: syft reads the packages")
    return completed(inside, run_syft(inside), pins.load().files if files is None else files)


def write(made: Bill, path: Path) -> Path:
    """Writes the document as JSON, whole or not at all; its path."""
    text = json.dumps(made.document, indent=1, ensure_ascii=False) + "\n"
    with disk.said_of(path.parent, path.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        with disk.aside(path) as new:
            new.write_text(text, encoding="utf-8")
    return path


def find_syft(beside: Path = Path(sys.executable).parent) -> str:
    """The command `syft` of this environment, else the first on PATH."""
    found = shutil.which("syft", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise UserError("syft, which makes the bill of materials, is not here: run `make setup`, which brings it.")
    return found


def run_syft(inside: Contents) -> dict[str, Any]:
    """What syft says of an image's records, as CycloneDX."""
    command = [find_syft(), "scan", "--quiet", "--output", "cyclonedx-json"]
    command += ["--override-default-catalogers", CATALOGERS]
    with tempfile.TemporaryDirectory(prefix="berth-bill-") as name:
        folder = Path(name)
        lay_out(inside, folder / "image")
        # A person's own settings of syft, in a file or in variables, would make another bill.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SYFT_")}
        environment = {**kept, "HOME": name, "XDG_CONFIG_HOME": name, "SYFT_CHECK_FOR_APP_UPDATE": "false"}
        try:
            done = subprocess.run(
                [*command, "--base-path", str(folder / "image"), f"dir:{folder / 'image'}"],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise UserError(f"syft did not end within {_TIMEOUT_S} s: see what keeps this machine busy.") from None
        try:
            document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
        except ValueError:
            document = {}
    if document.get("bomFormat") != "CycloneDX":
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UserError(
            f"syft could not read the packages of {inside.image} ({last}): run `make setup`, which brings one that can."
        )
    return document


def lay_out(inside: Contents, folder: Path) -> None:
    """Writes the records into a folder as they lie in the image, each copyright file under its package's name too: some
    packages have another's folder of documentation, by a link that is no record.
    """
    with disk.said_of(folder, "what the image says of its packages"):
        folder.mkdir()
        for path, record in inside.records.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(record)
        for path, file in inside.files.items():
            if path.startswith("usr/share/doc/") and path.count("/") == 3 and file.kind == "link":
                linked = inside.records.get(resolved(inside.files, f"{path}/copyright"))
                if linked is not None:
                    (folder / path).mkdir(parents=True, exist_ok=True)
                    (folder / path / "copyright").write_bytes(linked)


def completed(inside: Contents, document: Mapping[str, Any], files: Mapping[str, pins.File]) -> Bill:
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


def _package(inside: Contents, component: Mapping[str, Any]) -> Package:
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
        copyright_file = resolved(inside.files, f"usr/share/doc/{name}/copyright")
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


def _listed_by_dpkg(inside: Contents, name: str) -> Iterator[str]:
    """The paths that dpkg has of a package, one for several architectures with its architecture in the file's name."""
    info = "var/lib/dpkg/info/"
    for listing in (f"{info}{name}.list", f"{info}{name}:amd64.list"):
        for line in inside.records.get(listing, b"").decode(errors="surrogateescape").splitlines():
            yield resolved(inside.files, line)


def _listed_by_record(inside: Contents, metadata: str) -> Iterator[str]:
    """The paths of a distribution's RECORD (PEP 376), whose lines are relative to the folder above it."""
    folder = os.path.dirname(metadata)
    for line in inside.records.get(f"{folder}/RECORD", b"").decode(errors="surrogateescape").splitlines():
        # A path with a comma stands in quotes; neither hash nor size ever has one.
        path = line.rsplit(",", 2)[0].strip('"')
        yield resolved(inside.files, os.path.normpath(f"/{os.path.dirname(folder)}/{path}"))


def _hash(inside: Contents, paths: Iterator[str]) -> str:
    """The sha256 of `sha256sum`'s lines for those of the paths that are files, sorted by path; empty without one."""
    found = {path: file for path in paths if (file := inside.files.get(path)) is not None and file.kind == "file"}
    if not found:
        return ""
    lines = "".join(f"{found[path].sha256}  /{path}\n" for path in sorted(found))
    return hashlib.sha256(lines.encode(errors="surrogateescape")).hexdigest()


def _files(labels: Mapping[str, str], files: Mapping[str, pins.File]) -> list[tuple[Package, pins.File | None]]:
    """What came as a file, by the labels of the image: EFA's installer, SMDDP, GDRCopy and cuda-compat."""
    found: list[tuple[Package, pins.File | None]] = []
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


def _distribution(file: pins.File | None) -> dict[str, Any]:
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


def _metadata(inside: Contents, document: Mapping[str, Any]) -> dict[str, Any]:
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
