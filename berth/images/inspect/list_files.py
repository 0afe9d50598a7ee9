"""Runs in a container of an image with the image's Python: lists every file's sha256, links, and packages' records.

image_listing.py passes this text to `python3 -c`, so it imports only the standard library. It prints a zip file with
`listing.json`, and the records by number, because their names may not be valid Unicode.
"""

import hashlib
import io
import json
import os
import re
import stat
import sys
import zipfile
from collections.abc import Collection, Iterator
from typing import IO

LARGEST_RECORD = 16 << 20
RECORDS = (
    r"(etc|usr/lib)/os-release"
    r"|var/lib/dpkg/(status|status\.d/[^/]+|info/[^/]+\.list)"
    r"|usr/share/doc/[^/]+/copyright"
    r"|(.+/)?[^/]+\.dist-info/(METADATA|RECORD|(licenses/)?(LICEN[CS]E|COPYING)[^/]*)"
    r"|(.+/)?[^/]+\.egg-info(/PKG-INFO)?"
    r"|opt/berth/versions"
)
"""The files that describe packages: dpkg's files, Debian's copyrights, metadata of Python distributions, and berth's
list of versions.
"""


def walked(root: str, without: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below `root` except folders, with relative paths; skips the paths in `without`."""
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                if path in without:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                else:
                    yield path, entry.stat(follow_symlinks=False)


def write(root: str, target: IO[bytes], without: Collection[str]) -> None:
    """Writes the listing of `root` into `target` as a zip file."""
    hashes: dict[str, str] = {}
    links: dict[str, str] = {}
    records: list[str] = []
    record = re.compile(RECORDS)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, status in walked(root, without):
            full = os.path.join(root, path)
            if stat.S_ISLNK(status.st_mode):
                links[path] = os.readlink(full)
            elif stat.S_ISREG(status.st_mode):
                with open(full, "rb") as file:
                    if record.fullmatch(path) and status.st_size <= LARGEST_RECORD:
                        content = file.read()
                        hashes[path] = hashlib.sha256(content).hexdigest()
                        archive.writestr(str(len(records)), content)
                        records.append(path)
                    else:
                        hashes[path] = hashlib.file_digest(file, "sha256").hexdigest()
        archive.writestr("listing.json", json.dumps({"hashes": hashes, "links": links, "records": records}))


def mounted(mountinfo: str) -> set[str]:
    """The mount points that hide the image's own files: the fifth field of /proc/self/mountinfo (proc(5))."""
    points = (line.split()[4] for line in mountinfo.splitlines())
    return {re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point).lstrip("/") for point in points} - {""}


if __name__ == "__main__":
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        engine_mounts = mounted(mounts.read()) | {".dockerenv"}
    packed = io.BytesIO()
    write("/", packed, engine_mounts)
    sys.stdout.buffer.write(packed.getvalue())
