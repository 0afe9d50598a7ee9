"""Debian and Python packages from an image's records: licences, publishers."""

import hashlib
from collections.abc import Mapping

import pytest

from berth.images.inspect import cyclonedx, dpkg, spdx
from berth.images.inspect.distributions import python_packages
from berth.images.inspect.dpkg import debian_packages, licence_names
from berth.images.inspect.image_listing import ImageListing

SITE = "opt/berth/lib/python3.11/site-packages"


def listing(records: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> ImageListing:
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in records.items()}
    return ImageListing("i", "sha256:0", "2026-11-21T23:25:10Z", {}, hashes, links or {}, records)


def metadata(name: str, *headers: str) -> dict[str, bytes]:
    text = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *headers, "", "A description", ""])
    return {f"{SITE}/{name}-1.0.dist-info/METADATA": text.encode()}


def test_packages_are_read_from_status_d() -> None:
    """Distroless images have a file per package in status.d; the files *.md5sums there are not packages."""
    stanza = b"Package: base-files\nVersion: 12\nArchitecture: amd64\n"
    records = {"var/lib/dpkg/status.d/base": stanza, "var/lib/dpkg/status.d/base.md5sums": b"00  etc/x\n"}
    (found,) = debian_packages(listing(records | {"etc/os-release": b"ID=ubuntu\nVERSION_ID='22.04'\n"}))
    assert found.package.path == "var/lib/dpkg/status.d/base"
    assert found.package.purl == "pkg:deb/ubuntu/base-files@12?arch=amd64&distro=ubuntu-22.04"


@pytest.mark.parametrize(
    ("source", "upstream"), [("gcc-12", "&upstream=gcc-12"), ("glibc (2.36-9)", "&upstream=glibc%402.36-9"), ("", "")]
)
def test_purl_names_source_package(source: str, upstream: str) -> None:
    stanza = f"Package: x\nVersion: 1\nArchitecture: amd64\n{f'Source: {source}' if source else 'Section: libs'}\n"
    (found,) = debian_packages(listing({"var/lib/dpkg/status": stanza.encode()}))
    assert found.package.purl == f"pkg:deb/x@1?arch=amd64{upstream}"


def test_multi_arch_packages_have_separate_files() -> None:
    stanzas = [f"Package: libc6\nVersion: 2\nArchitecture: {each}\n" for each in ("amd64", "i386")]
    records = {"var/lib/dpkg/status": "\n".join(stanzas).encode()}
    records |= {f"var/lib/dpkg/info/libc6:{each}.list": f"/lib/{each}.so\n".encode() for each in ("amd64", "i386")}
    records |= {"lib/amd64.so": b"64", "lib/i386.so": b"32"}
    one, other = debian_packages(listing(records))
    assert one.package.hash != other.package.hash != ""


def test_publisher_of_a_distribution() -> None:
    records = metadata("a", "Author: Ada") | metadata("b", "Author-email: Bo <b@x>")
    records |= metadata("c", "Author: Cy", "Author-email: c@x") | metadata("d")
    assert [each.publisher for each in python_packages(listing(records))] == ["Ada", "Bo <b@x>", "Cy <c@x>", ""]


MIT = b"""MIT License

Permission is hereby granted, free of charge, to any person obtaining a copy of this
software and associated documentation files ...
"""


@pytest.mark.parametrize("folder", ["", "licenses/"])
def test_licence_file_is_the_fallback_for_metadata(folder: str) -> None:
    records = metadata("silent", "License-File: LICENSE") | metadata("isc", "License-File: LICENSE", "License: ISC")
    records |= {f"{SITE}/{each}-1.0.dist-info/{folder}LICENSE": MIT for each in ("silent", "isc")}
    found = {each.package.name: each.package.licence for each in python_packages(listing(records))}
    assert found == {"silent": "MIT", "isc": "ISC"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"                 Apache License\n           Version 2.0, January 2004\n", "Apache-2.0"),
        (b"Redistributions in binary form must reproduce the above\n copyright notice, this list of\n", "BSD-2-Clause"),
        (b"All rights reserved.", ""),
        (b"\xff\xfe", ""),
    ],
)
def test_text_licence(text: bytes, expected: str) -> None:
    assert spdx.text_licence(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("License: GPL-2+\nLicense: GPL-2\n", ["GPL-2.0-only", "GPL-2.0-or-later"]),
        ("License: GPL3+\nLicense: Apache-2\n", ["Apache-2.0", "GPL-3.0-or-later"]),
        ("License: BSD-3-clause-Somebody\n License: MIT\n", ["BSD-3-clause-Somebody"]),
        ("see /usr/share/common-licenses/LGPL-2.1.\n", ["LGPL-2.1-only"]),
        ("License\n-------\n\nPermission is\ngranted. More.\n", ["Permission is granted"]),
        ("License: none\nLicense:\n", []),
    ],
)
def test_licence_names_of_copyright_file(text: str, expected: list[str]) -> None:
    assert licence_names(text.encode()) == expected


def test_image_without_os_release_has_no_system_component() -> None:
    assert dpkg.os_release(listing({})) == {}
    assert cyclonedx.bill_of(listing({}), {}).document["components"] == []
