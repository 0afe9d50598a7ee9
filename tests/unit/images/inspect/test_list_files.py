"""list_files.py on a folder that stands for an image's root, and parsing its output."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from berth.common.errors import UserError
from berth.images.inspect import image_listing, list_files

METADATA = "opt/berth/lib/python3.11/site-packages/rich-15.0.0.dist-info/METADATA"
MOUNTINFO = """\
22 1 0:21 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a:/b
23 22 0:22 / /proc rw,nosuid - proc proc rw
24 22 254:0 /var/lib/docker/containers/1/hosts /etc/hosts rw,relatime - ext4 /dev/vda rw
25 22 0:30 / /a\\040folder rw - tmpfs tmpfs rw
"""


def root_of(folder: Path) -> Path:
    root = folder / "root"
    contents = {METADATA: b"Name: rich\n", "usr/lib/libc.so.6": b"libc", "caf\udce9": b"latin"}
    for name, content in {**contents, "proc/cpuinfo": b"of the machine", "etc/hosts": b"of the engine"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    os.link(root / "usr/lib/libc.so.6", root / "usr/lib/libc.so")
    (root / "lib").symlink_to("usr/lib")
    (root / "nowhere").symlink_to("/is/not/here")
    os.mkfifo(root / "pipe")
    return root


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def listed(packed: bytes) -> tuple[dict[str, Any], list[bytes]]:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        listing: dict[str, Any] = json.loads(archive.read("listing.json"))
        return listing, [archive.read(str(number)) for number in range(len(listing["records"]))]


def test_listing_skips_mounts_of_the_engine(tmp_path: Path) -> None:
    packed = io.BytesIO()
    list_files.write(str(root_of(tmp_path)), packed, {"proc", "etc/hosts"})
    listing, records = listed(packed.getvalue())
    assert listing["hashes"] == {
        METADATA: sha256(b"Name: rich\n"),
        "usr/lib/libc.so.6": sha256(b"libc"),
        "usr/lib/libc.so": sha256(b"libc"),
        "caf\udce9": sha256(b"latin"),
    }
    assert listing["links"] == {"lib": "usr/lib", "nowhere": "/is/not/here"}
    assert (listing["records"], records) == ([METADATA], [b"Name: rich\n"])


def test_large_record_is_only_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_files, "LARGEST_RECORD", 4)
    packed = io.BytesIO()
    list_files.write(str(root_of(tmp_path)), packed, ())
    listing, records = listed(packed.getvalue())
    assert listing["hashes"][METADATA] == sha256(b"Name: rich\n")
    assert (listing["records"], records) == ([], [])


def test_mounted_paths_from_mountinfo() -> None:
    assert list_files.mounted(MOUNTINFO) == {"proc", "etc/hosts", "a folder"}


def test_list_files_needs_only_the_standard_library() -> None:
    """Runs the text as `list_image` does, but not as `__main__`, so it does not walk this machine's files."""
    text = image_listing.LISTING.read_text()
    code = "import sys; exec(compile(sys.argv[1], 'listing', 'exec'), {'__name__': 'listing'})"
    assert subprocess.run([sys.executable, "-I", "-S", "-c", code, text]).returncode == 0


def test_resolved_follows_links_of_folders() -> None:
    links = {
        "lib": "usr/lib",
        "usr/lib/x": "y",
        "usr/share/doc/libgcc-s1": "gcc-12-base",
        "abs": "/usr",
        "loop": "loop",
    }
    assert image_listing.resolved(links, "/lib/x") == "usr/lib/x"
    assert image_listing.resolved(links, "usr/share/doc/libgcc-s1/copyright") == "usr/share/doc/gcc-12-base/copyright"
    assert image_listing.resolved(links, "abs/lib/x") == "usr/lib/x"
    assert image_listing.resolved(links, "loop/x").endswith("x")


@pytest.mark.parametrize("printed", [b"", b"no zip", b"PK\x03\x04 cut short"])
def test_truncated_listing_is_reported(printed: bytes) -> None:
    with pytest.raises(UserError, match=r"^the engine sent only a part of the list of berth-serve:cpu's files: "):
        image_listing.unpack_listing("berth-serve:cpu", printed)
