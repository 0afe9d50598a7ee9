"""The bill of materials: Debian and Python packages, files, and its cache."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from berth.common import engine
from berth.images.inspect import cyclonedx, sbom
from berth.images.inspect.image_listing import ImageListing
from berth.images.inspect.packages import BillPackage
from berth.images.pins import pins

SITE = "opt/berth/lib/python3.11/site-packages"
STATUS = b"""Package: libc6
Essential: yes
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u14
Maintainer: GNU Libc Maintainers <debian-glibc@lists.debian.org>
Description: GNU C Library

Package: libasan8
Status: install ok installed
Architecture: amd64
Version: 12.2.0-14
Maintainer: Debian GCC Maintainers <debian-gcc@lists.debian.org>
Description: pruned whole

Package: gone
Essential: yes
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0
Description: removed

"""
RECORDS = {
    "usr/lib/os-release": b'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "var/lib/dpkg/status": STATUS,
    "var/lib/dpkg/info/libc6:amd64.list": b"/.\n/lib\n/lib/libc.so.6\n/usr/share/doc/libc6/copyright\n",
    "var/lib/dpkg/info/libasan8:amd64.list": b"/usr/lib/libasan.so.8\n",
    "usr/share/doc/libc6/copyright": b"License: GPL-2\n\nsee /usr/share/common-licenses/GPL-2\n",
    f"{SITE}/rich-15.0.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: rich\nVersion: 15.0.0\nLicense: MIT\n\n",
    f"{SITE}/rich-15.0.0.dist-info/RECORD": b'rich/a.py,,\n"rich/b,c.py",,\n../../../bin/rich,,\nrich/pruned.py,,\n',
    f"{SITE}/berth-0.1.0.dist-info/METADATA": b"Metadata-Version: 2.4\nName: berth\nVersion: 0.1.0\n"
    b"License-Expression: Apache-2.0\n\n",
    f"{SITE}/setuptools/_vendor/rich-15.0.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: rich\n"
    b"Version: 15.0.0\n\n",
}
PLAIN = {
    "usr/lib/libc.so.6": b"libc",
    f"{SITE}/rich/a.py": b"a",
    f"{SITE}/rich/b,c.py": b"bc",
    "opt/berth/bin/rich": b"",
}


LISTING = ImageListing(
    image="berth-serve:cpu",
    image_id="sha256:" + "1" * 64,
    created="2026-11-21T23:25:10.728863082Z",
    labels={"berth.kit": "serve", "org.opencontainers.image.version": "0.1.0"},
    hashes={path: hashlib.sha256(content).hexdigest() for path, content in (RECORDS | PLAIN).items()},
    links={"lib": "usr/lib"},
    records=RECORDS,
)


@pytest.fixture(scope="module")
def bill() -> cyclonedx.Bill:
    return cyclonedx.bill_of(LISTING, {})


def hash_of(paths: dict[str, bytes]) -> str:
    """The output of `sha256sum PATHS | sha256sum` with sorted paths."""
    lines = "".join(f"{hashlib.sha256(content).hexdigest()}  /{path}\n" for path, content in sorted(paths.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def test_bill_has_packages_with_licence_and_hash(bill: cyclonedx.Bill) -> None:
    rich = {path: PLAIN[path] for path in PLAIN if "rich" in path}
    libc = {path: (RECORDS | PLAIN)[path] for path in ("usr/lib/libc.so.6", "usr/share/doc/libc6/copyright")}
    dpkg = "var/lib/dpkg/status"
    deb = "pkg:deb/debian/{}?arch=amd64&distro=debian-12"
    assert bill.packages == (
        BillPackage("libasan8", "12.2.0-14", "deb", "", "", deb.format("libasan8@12.2.0-14"), dpkg),
        BillPackage(
            "libc6",
            "2.36-9+deb12u14",
            "deb",
            "GPL-2.0-only",
            hash_of(libc),
            deb.format("libc6@2.36-9%2Bdeb12u14") + "&upstream=glibc",
            dpkg,
        ),
        # berth is not on PyPI: a PyPI purl would name another project.
        BillPackage(
            "berth",
            "0.1.0",
            "python",
            "Apache-2.0",
            "",
            "pkg:generic/berth@0.1.0",
            f"{SITE}/berth-0.1.0.dist-info/METADATA",
        ),
        BillPackage(
            "rich",
            "15.0.0",
            "python",
            "MIT",
            hash_of(rich),
            "pkg:pypi/rich@15.0.0",
            f"{SITE}/rich-15.0.0.dist-info/METADATA",
        ),
        BillPackage(
            "rich",
            "15.0.0",
            "python",
            "",
            "",
            "pkg:pypi/rich@15.0.0",
            f"{SITE}/setuptools/_vendor/rich-15.0.0.dist-info/METADATA",
        ),
    )


def test_document_is_valid_and_references_are_unique(bill: cyclonedx.Bill, tmp_path: Path) -> None:
    path = sbom.write(bill, tmp_path / "dist", "berth-serve", "1", derived=False)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text()) is None
    written = json.loads(path.read_text())
    references = [component["bom-ref"] for component in written["components"]]
    assert len(set(references)) == len(references) == 6
    assert written["metadata"]["component"]["name"] == "berth-serve"
    assert written["components"][0]["type"] == "operating-system"
    assert os.listdir(tmp_path / "dist") == ["berth-serve-1.cdx.json"]


def test_file_packages_come_from_the_list_of_versions() -> None:
    """A plain `docker build` sets no labels for EFA and SMDDP, but docker/layers/kit.sh writes their versions."""
    versions = b"PROFILE=cu130\nTORCH=2.13.0\nEFA=1.47.0\nSMDDP='2.6.0'\nCUDA_COMPAT=13.1+double\nIMAGE=train\n"
    listing = replace(LISTING, records={**RECORDS, "opt/berth/versions": versions})
    assert cyclonedx.installed_versions(listing)["TORCH"] == "2.13.0"
    efa = pins.PinnedFile("efa", "1.47.0", "efa.tar.gz", "https://efa.example/efa.tar.gz", "a" * 64)
    smddp = pins.PinnedFile("smddp", "2.6.0", "smddp.whl", "", pins.UNPINNED)
    bill = cyclonedx.bill_of(listing, {"efa-1.47.0": efa, "smddp-2.6.0": smddp})
    files = [(each.name, each.version, each.hash, each.licence) for each in bill.packages if each.kind == "file"]
    assert files == [
        ("cuda-compat", "13.1+double", "", "LicenseRef-NVIDIA-Proprietary"),
        ("efa", "1.47.0", "a" * 64, ""),
        ("smddp", "2.6.0", "", ""),
    ]
    component = next(each for each in bill.document["components"] if each["name"] == "efa")
    assert component["externalReferences"] == [{"type": "distribution", "url": "https://efa.example/efa.tar.gz"}]


def test_bill_of_image_without_packages_is_empty() -> None:
    bare = replace(LISTING, records={}, hashes={}, links={}, labels={})
    bill = cyclonedx.bill_of(bare, {})
    assert bill.packages == ()
    assert bill.document["metadata"]["component"]["name"] == bare.image_id


class CountedReads:
    """A fake of the container that lists an image's files; `images` has the ID of each listed image."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.images: list[str] = []
        monkeypatch.setattr(engine, "find_image", lambda client, name: SimpleNamespace(id=LISTING.image_id))
        monkeypatch.setattr(sbom, "list_image", self._list)

    def _list(self, client: object, image: str) -> ImageListing:
        self.images.append(image)
        return LISTING


def test_bill_is_cached_by_image_id(bill: cyclonedx.Bill, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reads = CountedReads(monkeypatch)
    first = sbom.image_bill(MagicMock(), "berth-serve:cpu", cache=tmp_path / "bills")
    second = sbom.image_bill(MagicMock(), "berth-serve:0.1.0-cpu-1", cache=tmp_path / "bills")
    assert first.packages == bill.packages
    assert second == replace(first, image="berth-serve:0.1.0-cpu-1")
    assert json.dumps(second.document) == json.dumps(first.document)
    assert reads.images == [LISTING.image_id]


def test_changed_pins_make_a_new_bill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reads = CountedReads(monkeypatch)
    sbom.image_bill(MagicMock(), "berth-serve:cpu", cache=tmp_path)
    all_pins = sbom.pins_file.load()
    monkeypatch.setattr(sbom.pins_file, "load", lambda: replace(all_pins, files={}))
    sbom.image_bill(MagicMock(), "berth-serve:cpu", cache=tmp_path)
    assert len(reads.images) == 2
