"""Reads an image's contents: its layers, every file of its final file system with sha256, and packages' records.

`read_image` reads the archive of `docker save` (see layers.py), 900 MB in about 20 s, and caches the result by image
id. Of the files' contents, only packages' records are kept (`is_record`), from which `cyclonedx` makes a bill.

`diff` uses this and not image_listing.py, which has no layers, so it could not say which step made a difference. It
also needs Python 3.11 in the image, and misses files hidden by the engine's mounts, and times of folders.
"""

import hashlib
import posixpath
import re
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from docker import DockerClient

from berth.common.kept import Kept, answer_key
from berth.images.inspect.layers import SavedLayer, plain_layer, saved_archive, saved_layers
from berth.images.inspect.list_files import LARGEST_RECORD, RECORDS
from berth.images.pins.pins import CACHE
from berth.images.selection import find_built_image

KEPT = 10
"""The number of images in the cache, up to 30 megabytes each."""
_USER_CACHE = CACHE / "contents"
_FORM = 5  # the cache's format; other formats are ignored
_PIECE = 1 << 20
_RECORDS = re.compile(RECORDS)
_XATTR = "SCHILY.xattr."


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One path of an image; layer: the index of the layer that it comes from, 0 is the lowest.

    kind: file, folder, link, device or pipe. mtime: seconds since 1970. sha256: of a file's bytes, else empty.
    target: a link's, or a device's numbers. attributes: extended ones such as capabilities, as `name=hexadecimal`.
    """

    kind: str
    mode: int
    uid: int
    gid: int
    size: int
    mtime: float
    sha256: str = ""
    target: str = ""
    attributes: str = ""
    layer: int = 0


@dataclass(frozen=True, slots=True)
class SavedImage:
    """The contents of an image. files: by path, without a leading slash; records: contents by path; created: from the
    engine (RFC 3339).
    """

    image: str
    image_id: str
    created: str
    labels: Mapping[str, str]
    layers: tuple[SavedLayer, ...]
    files: Mapping[str, FileEntry]
    records: Mapping[str, bytes]


class LayerEntry(NamedTuple):
    """A file in one layer; record: its contents if it is a package's record."""

    file: FileEntry
    record: bytes | None


ImageContents = tuple[tuple[SavedLayer, ...], dict[str, FileEntry], dict[str, bytes]]
"""The layers of an image, its final files by path, and the records among them."""


def read_image(
    client: DockerClient,
    image: str,
    *,
    cache: Path | None = None,
    step: Callable[[str], None] = lambda done: None,
) -> SavedImage:
    """Reads an image of the engine, or takes it from `cache` (default: the user's).

    step: called with a description of each step. Raises UserError if there is no such image, or the engine does not
    send all of it.
    """
    built = find_built_image(client, image)
    image_id, attributes = str(built.id), built.attrs
    cached, key = Kept(cache or _USER_CACHE, KEPT), answer_key(image_id, _FORM)
    contents = _from_json(cached.load(key))
    if contents is None:
        step(f"{image}: reading the files of {len(attributes['RootFS'].get('Layers') or ())} layers")
        with saved_archive(built, image, cached.folder) as archive:
            contents = read_archive(archive)
        cached.store(key, _as_json(contents))
    return SavedImage(image, image_id, attributes["Created"], attributes["Config"].get("Labels") or {}, *contents)


def is_record(path: str) -> bool:
    """Whether a file describes packages: dpkg's files, Debian's copyrights, metadata of Python distributions."""
    return bool(_RECORDS.fullmatch(path)) and ".." not in path.split("/")


def read_archive(archive: Path) -> ImageContents:
    """The layers, files and records of an archive of `docker save`."""
    saved = saved_layers(archive)
    files, records = apply_layers(read_layer(archive, member) for _, member in saved)
    return tuple(layer for layer, _ in saved), files, records


def read_layer(archive: Path, member: str) -> dict[str, LayerEntry]:
    """The paths of one layer, including the markers of deleted files (`.wh.…`)."""
    found: dict[str, LayerEntry] = {}
    # surrogateescape keeps names that are not valid Unicode.
    with plain_layer(archive, member) as plain:
        with tarfile.open(fileobj=plain, mode="r|", bufsize=_PIECE, errors="surrogateescape") as tar:
            for each in tar:
                path = _normal(each.name)
                if path:
                    found[path] = _entry(tar, each, path, found)
        while plain.read(_PIECE):  # to the end, where a compressed layer has its checksum
            pass
    return found


def _entry(tar: tarfile.TarFile, member: tarfile.TarInfo, path: str, found: Mapping[str, LayerEntry]) -> LayerEntry:
    if member.islnk() and _normal(member.linkname) in found:
        return found[_normal(member.linkname)]  # a hard link: one file under two names
    attributes = ";".join(
        f"{key.removeprefix(_XATTR)}={value.encode(errors='surrogateescape').hex()}"
        for key, value in sorted(member.pax_headers.items())
        if key.startswith(_XATTR)
    )
    kind, sha256, target, record = "file", "", "", None
    if member.isdir():
        kind = "folder"
    elif member.issym() or member.islnk():
        kind, target = "link", member.linkname
    elif member.ischr() or member.isblk():
        kind, target = "device", f"{member.devmajor}:{member.devminor}"
    elif member.isfifo():
        kind = "pipe"
    else:
        reader = tar.extractfile(member)
        assert reader is not None, "a regular file has bytes"
        if is_record(path) and member.size <= LARGEST_RECORD:
            record = reader.read()
            sha256 = hashlib.sha256(record).hexdigest()
        else:
            digest = hashlib.sha256()
            while piece := reader.read(_PIECE):
                digest.update(piece)
            sha256 = digest.hexdigest()
    size = member.size if kind == "file" else 0
    mode = stat.S_IMODE(member.mode)  # some tools also store the file type in it
    file = FileEntry(kind, mode, member.uid, member.gid, size, float(member.mtime), sha256, target, attributes)
    return LayerEntry(file, record)


def apply_layers(layers: Iterable[Mapping[str, LayerEntry]]) -> tuple[dict[str, FileEntry], dict[str, bytes]]:
    """Merges layers, lowest first; returns the final files and the records among them.

    By OCI's image specification, `.wh.NAME` deletes NAME of the layers below with its contents, `.wh..wh..opq` deletes
    all that they have in its folder, and anything but a folder replaces a folder completely.
    """
    below: dict[str, LayerEntry] = {}
    for number, layer in enumerate(layers):
        deleted: set[str] = set()
        emptied: set[str] = set()
        entries: dict[str, LayerEntry] = {}
        for path, entry in layer.items():
            folder, name = posixpath.split(path)
            if name == ".wh..wh..opq":
                emptied.add(folder)
            elif name.startswith(".wh."):
                deleted.add(posixpath.join(folder, name.removeprefix(".wh.")))
            else:
                entries[path] = LayerEntry(replace(entry.file, layer=number), entry.record)
                if entry.file.kind != "folder":
                    deleted.add(path)
        below = {path: entry for path, entry in below.items() if not _deleted(path, deleted, emptied)} | entries
    paths = sorted(below)
    records = {path: record for path in paths if (record := below[path].record) is not None}
    return {path: below[path].file for path in paths}, records


def _deleted(path: str, deleted: set[str], emptied: set[str]) -> bool:
    if path in deleted:
        return True
    while path:
        path = posixpath.dirname(path)
        if path in deleted or path in emptied:
            return True
    return False


def _normal(name: str) -> str:
    return posixpath.normpath(f"/{name}").strip("/")


def _as_json(contents: ImageContents) -> dict[str, Any]:
    """The contents as a JSON document; Latin-1 has a character for each byte of a record."""
    layers, files, records = contents
    return {
        "layers": [astuple(each) for each in layers],
        "files": {name: astuple(file) for name, file in files.items()},
        "records": {name: record.decode("latin-1") for name, record in records.items()},
    }


def _from_json(document: Any) -> ImageContents | None:
    """The contents in a document of `_as_json`; None for None."""
    if document is None:
        return None
    return (
        tuple(SavedLayer(*each) for each in document["layers"]),
        {name: FileEntry(*values) for name, values in document["files"].items()},
        {name: record.encode("latin-1") for name, record in document["records"].items()},
    )
