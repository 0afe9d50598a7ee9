"""What an image's packages are described by: every file's sha256, its links, and the records of packages.

`list_image` has the image itself say it, in a container without network (list_files.py): 900 MB take 4 s, where reading
the layers of `docker save`, as saved_image.py does for a comparison, takes 15 s and the image's size of the engine's
disk.
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
    """An image, and what a bill of materials is made of; paths without a leading slash.

    `created` is its moment as the engine says it (RFC 3339); `hashes` are the sha256 of regular files by path, `links`
    the targets of links, `records` the bytes of what tells of packages (list_files.RECORDS).
    """

    image: str
    image_id: str
    created: str
    labels: Mapping[str, str]
    hashes: Mapping[str, str]
    links: Mapping[str, str]
    records: Mapping[str, bytes]


def list_image(client: DockerClient, image: str) -> ImageListing:
    """Runs list_files.py in the image; UserError without such an image, or where it has no Python that can."""
    found = engine.find_image(client, image)
    printed = run_once(client, str(found.id), ["python3", "-I", "-c", LISTING.read_text(encoding="utf-8")])
    return ImageListing(image, str(found.id), found.attrs["Created"], found.labels, *unpack_listing(image, printed))


def unpack_listing(image: str, printed: bytes) -> tuple[dict[str, str], dict[str, str], dict[str, bytes]]:
    """Hashes, links and records, sorted by path, out of what list_files.py has printed in `image`."""
    try:
        with zipfile.ZipFile(BytesIO(printed)) as archive:
            listing = json.loads(archive.read("listing.json"))
            records = {path: archive.read(str(number)) for number, path in enumerate(listing["records"])}
    except zipfile.BadZipFile:
        raise UserError(
            f"the engine handed over a part of what {image} holds only: see that it still runs, then try again."
        ) from None
    return (
        dict(sorted(listing["hashes"].items())),
        dict(sorted(listing["links"].items())),
        dict(sorted(records.items())),
    )


def listing_of(saved: SavedImage) -> ImageListing:
    """The same of an image whose layers were read."""
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
    """The path after links in its folders, as /lib/x is usr/lib/x where lib is a link; a link at its end stays."""
    parts, done, turns = path.strip("/").split("/"), "", 0
    while len(parts) > 1:
        first = parts.pop(0)
        here = posixpath.join(done, first)
        if here in links and turns < 40:  # as many as Linux follows
            target = posixpath.normpath(posixpath.join("/", done, links[here])).strip("/")
            parts, done, turns = [*target.split("/"), *parts], "", turns + 1
        else:
            done = here
    return posixpath.join(done, parts[0])
