"""Finds an image's Debian packages in dpkg's records and copyright files. Pure."""

import re
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser

from packageurl import PackageURL

from berth.images.inspect import spdx
from berth.images.inspect.image_listing import ImageListing, resolved
from berth.images.inspect.packages import BillPackage, FoundPackage, hash_of

# One database, or a file per package as in images without dpkg.
_DATABASE = re.compile(r"var/lib/dpkg/status(\.d/[^/]+)?")
_OS_RELEASE = ("etc/os-release", "usr/lib/os-release")
# dpkg keeps a record of removed packages whose settings remain.
_REMOVED = ("config-files", "not-installed")
# Licence names in a copyright file: a field of the machine-readable form, the path of a common licence, and the first
# sentence below an underlined title.
_FIELD = re.compile(r"^License: (\S*)", re.MULTILINE)
_COMMON = re.compile(r"/usr/share/common-licenses/([0-9A-Za-z_.\-]+)")
_SENTENCE = re.compile(r"\A[^\n]+\n-+\n+(.*?\.)", re.DOTALL)
_SHORT_VERSION = re.compile(r"(?<![\d.])-?(\d+)(?=\+?$)")  # GPL-2 and GPL2, which SPDX calls GPL-2.0


def os_release(listing: ImageListing) -> dict[str, str]:
    """The image's os-release(5), such as ID, VERSION_ID and PRETTY_NAME; empty if it has none."""
    text = next((listing.records[path] for path in _OS_RELEASE if path in listing.records), b"")
    lines = (line.partition("=") for line in text.decode(errors="replace").splitlines())
    return {name: value.strip("\"'") for name, equals, value in lines if equals}


def debian_packages(listing: ImageListing) -> list[FoundPackage]:
    """The installed packages in dpkg's database or in status.d files, in the order of the records."""
    system = os_release(listing)
    return [
        _package(listing, stanza, path, system)
        for path, record in listing.records.items()
        if _DATABASE.fullmatch(path)
        for stanza in _stanzas(record)
        if stanza["Package"] and stanza["Version"] and not str(stanza["Status"] or "").endswith(_REMOVED)
    ]


def licence_names(copyright_file: bytes) -> list[str]:
    """The licences in a copyright file, by SPDX identifier if there is one: GPL-2.0-or-later for GPL-2+.

    If the file is not machine-readable, some may not be names: the word after `License:` may begin a sentence, and the
    sentence below an underlined title may be about something else.
    """
    text = copyright_file.decode(errors="replace")
    sentences = [" ".join(sentence.split()) for sentence in _SENTENCE.findall(text)]
    found = [name.removesuffix(".") for name in (*_FIELD.findall(text), *_COMMON.findall(text), *sentences)]
    single = {name for name in found if name and name.lower() != "none" and not re.search(r" (or|and) ", name)}
    return sorted({spdx.expression(_SHORT_VERSION.sub(r"-\1.0", name)) or name for name in single})


def _stanzas(record: bytes) -> Iterator[Message]:
    """The paragraphs of a dpkg file (deb822), which has the format of mail headers."""
    for stanza in re.split(r"\n\n+", record.decode(errors="replace").strip()):
        yield HeaderParser().parsestr(stanza)


def _package(listing: ImageListing, stanza: Message, path: str, system: dict[str, str]) -> FoundPackage:
    name, version, architecture = (str(stanza[field] or "") for field in ("Package", "Version", "Architecture"))
    copyright_file = listing.records.get(resolved(listing.links, f"usr/share/doc/{name}/copyright"), b"")
    distribution = system.get("ID", "")
    qualifiers = {
        "arch": architecture,
        "distro": "-".join(filter(None, (distribution, system.get("VERSION_ID", "")))),
        "upstream": re.sub(r"^(\S+) \((\S+)\)$", r"\1@\2", str(stanza["Source"] or "")),
    }
    package = BillPackage(
        name,
        version,
        "deb",
        spdx.debian_licence(licence_names(copyright_file), copyright_file),
        hash_of(listing, _files(listing, name, architecture)),
        PackageURL("deb", distribution or None, name, version, qualifiers).to_string(),
        path,
    )
    return FoundPackage(package, str(stanza["Maintainer"] or ""))


def _files(listing: ImageListing, name: str, architecture: str) -> Iterator[str]:
    """The paths of a package in dpkg's lists; a multi-arch package has its architecture in the list's name."""
    info = "var/lib/dpkg/info/"
    for paths in (f"{info}{name}.list", f"{info}{name}:{architecture}.list"):
        for line in listing.records.get(paths, b"").decode(errors="surrogateescape").splitlines():
            yield resolved(listing.links, line)
