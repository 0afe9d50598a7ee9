"""Lists an image's files with sha256, its links, and the records of its packages.

`list_image` runs list_files.py in a container of the image, without network. 900 MB take 4 s; reading the layers of
`docker save`, as saved_image.py does for comparisons, takes 15 s and as much of the engine's disk as the image.
"""

import json
import posixpath
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from docker import DockerClient

from berth.common import engine
from berth.common.containers import run_once
from berth.common.errors import UserError
from berth.images.inspect.saved_image import SavedImage

LISTING = Path(__file__).with_name("list_files.py")


@dataclass(frozen=True, slots=True)
class ImageListing:
    """An image, and the inputs of a bill of materials; paths have no leading slash.

    created: from the engine (RFC 3339). hashes: sha256 of regular files by path. links: targets of links by path.
    records: contents of the files that describe packages (list_files.RECORDS).
    """

    image: str
    image_id: str
    created: str
    labels: Mapping[str, str]
    hashes: Mapping[str, str]
    links: Mapping[str, str]
    records: Mapping[str, bytes]


def list_image(client: DockerClient, image: str) -> ImageListing:
    """Runs list_files.py in the image; UserError if there is no such image, or its Python can't run it."""
    found = engine.find_image(client, image)
    printed = run_once(client, str(found.id), ["python3", "-I", "-c", LISTING.read_text(encoding="utf-8")])
    return ImageListing(image, str(found.id), found.attrs["Created"], found.labels, *unpack_listing(image, printed))


def unpack_listing(image: str, printed: bytes) -> tuple[dict[str, str], dict[str, str], dict[str, bytes]]:
    """Hashes, links and records, sorted by path, from the output of list_files.py in `image`."""
    try:
        with zipfile.ZipFile(BytesIO(printed)) as archive:
            listing = json.loads(archive.read("listing.json"))
            records = {path: archive.read(str(number)) for number, path in enumerate(listing["records"])}
    except zipfile.BadZipFile:
        raise UserError(
            f"the engine sent only a part of the list of {image}'s files: check that it still runs, then run the "
            "command again."
        ) from None
    return (
        dict(sorted(listing["hashes"].items())),
        dict(sorted(listing["links"].items())),
        dict(sorted(records.items())),
    )


def listing_of(saved: SavedImage) -> ImageListing:
    """The listing of an image whose layers were read."""
    files = saved.files
    return ImageListing(
        saved.image,
        saved.image_id,
        saved.created,
        saved.labels,
        {path: file.sha256 for path, file in files.items() if file.kind == "file"},
        {path: file.target for path, file in files.items() if file.kind == "link"},
        saved.records,
    )


def resolved(links: Mapping[str, str], path: str) -> str:
    """The path with links in its folders resolved: /lib/x is usr/lib/x if lib is a link. The last part is kept."""
    parts, folder, turns = path.strip("/").split("/"), "", 0
    while len(parts) > 1:
        first = parts.pop(0)
        current = posixpath.join(folder, first)
        if current in links and turns < 40:  # Linux's limit
            target = posixpath.normpath(posixpath.join("/", folder, links[current])).strip("/")
            parts, folder, turns = [*target.split("/"), *parts], "", turns + 1
        else:
            folder = current
    return posixpath.join(folder, parts[0])
