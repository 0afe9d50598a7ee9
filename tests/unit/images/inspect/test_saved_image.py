"""Reading an image from both forms of `docker save`'s archive, and from broken archives."""

import hashlib
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError, ImageNotFound
from requests.exceptions import ConnectionError

from berth.common.errors import UserError
from berth.images.inspect.saved_image import FileEntry, SavedImage, is_record, read_image
from tests.unit.images.inspect.saved import Content, archive, digest, link, tar_of, zstd

IMAGE_ID = "sha256:" + "1" * 64
METADATA = "opt/berth/lib/python3.11/site-packages/rich-15.0.0.dist-info/METADATA"


def hard_link(target: str) -> dict[str, Any]:
    return {"type": tarfile.LNKTYPE, "linkname": target}


class FakeEngine:
    """A fake engine with one image; `times` counts how often it was saved."""

    def __init__(self, saved: bytes, fault: Exception | None = None) -> None:
        self.saved, self.fault, self.times = saved, fault, 0
        self.id = IMAGE_ID
        self.attrs = {
            "Created": "2026-11-21T23:25:10Z",
            "Config": {"Labels": {"berth.kit": "serve"}},
            "RootFS": {"Layers": ["sha256:1", "sha256:2"]},
        }

    @property
    def images(self) -> "FakeEngine":
        return self

    def get(self, name: str) -> "FakeEngine":
        if name != "berth-serve:cpu":
            raise ImageNotFound("no such image")
        return self

    def save(self, chunk_size: int) -> Iterator[bytes]:
        self.times += 1
        half = len(self.saved) // 2
        yield self.saved[:half]
        if self.fault is not None:
            raise self.fault
        yield self.saved[half:]


def read(engine: Any, cache: Path) -> SavedImage:
    return read_image(engine, "berth-serve:cpu", cache=cache)  # type: ignore[arg-type]  # a fake


LOWER = tar_of(
    ("etc/", b""), ("etc/a", b"one"), ("lib", link("usr/lib")), ("usr/lib/", b""), (METADATA, b"Name: rich\n")
)
UPPER = tar_of(("./etc/a", b"two"), ("etc/b", hard_link("./etc/a")))
EMPTY = bytes(1024)


@pytest.mark.parametrize("form", ["older", "oci"])
def test_both_archive_forms_give_the_same_contents(form: str, tmp_path: Path) -> None:
    found = read(FakeEngine(archive([LOWER, EMPTY, UPPER, EMPTY], form)), tmp_path)
    assert (found.image, found.image_id, found.labels) == ("berth-serve:cpu", IMAGE_ID, {"berth.kit": "serve"})
    assert [each.diff_id for each in found.layers] == [digest(each) for each in (LOWER, EMPTY, UPPER, EMPTY)]
    assert [each.made_by for each in found.layers] == ["RUN step 0", "RUN step 1", "RUN step 2", "RUN step 3"]
    sha256 = hashlib.sha256(b"two").hexdigest()
    assert found.files["etc/a"] == FileEntry("file", 0o755, 0, 0, 3, 1_700_000_000, sha256, layer=2)
    assert found.files["etc/b"] == found.files["etc/a"]
    assert found.files["lib"].target == "usr/lib"
    assert list(found.files) == ["etc", "etc/a", "etc/b", "lib", METADATA, "usr/lib"]
    assert found.records == {METADATA: b"Name: rich\n"}


def test_contents_are_cached_by_image_id(tmp_path: Path) -> None:
    engine: Any = FakeEngine(archive([LOWER, UPPER], "older"))
    steps: list[str] = []
    first = read_image(engine, "berth-serve:cpu", cache=tmp_path, step=steps.append)
    assert read_image(engine, "berth-serve:cpu", cache=tmp_path, step=steps.append) == first
    assert (engine.times, steps) == (1, ["berth-serve:cpu: reading the files of 2 layers"])
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"what a full disk has left")
    assert read(engine, tmp_path) == first
    assert engine.times == 2


def files_of(folder: Path, *layers: bytes) -> dict[str, tuple[str, int]]:
    """The kind of each final file, and the number of the layer it comes from."""
    found = read(FakeEngine(archive([*layers], "older")), folder)
    return {path: (file.kind, file.layer) for path, file in found.files.items()}


@pytest.mark.parametrize(
    ("upper", "remaining"),
    [
        ([("a/.wh.b", b"")], {"a": ("folder", 0), "c": ("file", 0)}),
        ([(".wh.a", b"")], {"c": ("file", 0)}),
        (
            [("a/", b""), ("a/.wh..wh..opq", b""), ("a/new", b"")],
            {"a": ("folder", 1), "a/new": ("file", 1), "c": ("file", 0)},
        ),
        ([(".wh..wh..opq", b"")], {}),
        ([("a", b"a file now")], {"a": ("file", 1), "c": ("file", 0)}),
        ([("a", link("c"))], {"a": ("link", 1), "c": ("file", 0)}),
        ([(".wh.a", b""), ("a/", b""), ("a/d", b"")], {"a": ("folder", 1), "a/d": ("file", 1), "c": ("file", 0)}),
    ],
    ids=["file", "folder", "opaque", "all", "file-for-folder", "link-for-folder", "folder-anew"],
)
def test_layer_deletes_and_replaces_files(
    upper: list[tuple[str, Content]], remaining: Mapping[str, tuple[str, int]], tmp_path: Path
) -> None:
    assert (
        files_of(tmp_path, tar_of(("a/", b""), ("a/b/", b""), ("a/b/x", b""), ("c", b"")), tar_of(*upper)) == remaining
    )


def test_special_files_and_odd_paths(tmp_path: Path) -> None:
    odd = tar_of(
        ("null", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
        ("pipe", {"type": tarfile.FIFOTYPE}),
        ("gone", hard_link("of/a/layer/below")),
        ("ping", {"pax_headers": {"SCHILY.xattr.security.capability": "\x01\x02"}}),
        ("caf\udce9", b"no Unicode"),
        ("../../etc/x.dist-info/METADATA", b"outside"),
    )
    image = read(FakeEngine(archive([odd], "older")), tmp_path)
    files = image.files
    assert (files["null"].kind, files["null"].target) == ("device", "1:3")
    assert files["pipe"].kind == "pipe"
    assert (files["gone"].kind, files["gone"].target) == ("link", "of/a/layer/below")
    assert files["ping"].attributes == "security.capability=0102"
    assert files["caf\udce9"].size == 10
    assert list(image.records) == ["etc/x.dist-info/METADATA"], "a path with .. must stay inside the image"


@pytest.mark.parametrize(
    ("saved", "fault"),
    [
        (archive([LOWER, UPPER], "older")[:3000], None),
        (archive([LOWER, UPPER], "oci")[:2000], None),
        (b"", None),
        (b"<html>" * 1000, None),
        (archive([LOWER], "older"), ConnectionError("reset")),
    ],
    ids=["cut", "cut-oci", "nothing", "no-archive", "dropped"],
)
def test_incomplete_archive_is_refused_and_not_cached(saved: bytes, fault: Exception | None, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refusal:
        read(FakeEngine(saved, fault), tmp_path)
    assert str(refusal.value) == (
        "the engine sent only a part of berth-serve:cpu: check that it still runs, then run the command again."
    )
    assert list(tmp_path.iterdir()) == []


def test_full_disk_of_the_engine_is_reported(tmp_path: Path) -> None:
    full = APIError("500", explanation="write /var/lib/docker/tmp: no space left on device")
    with pytest.raises(UserError, match=r"no space left on device; check that its disk has room for a copy"):
        read(FakeEngine(archive([LOWER], "older"), full), tmp_path)


def test_missing_image_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no image berth-train:cpu here: build it with"):
        read_image(FakeEngine(b""), "berth-train:cpu", cache=tmp_path)  # type: ignore[arg-type]  # a fake


@pytest.mark.skipif(shutil.which("zstd") is None, reason="this machine has no program zstd")
def test_zstd_layer_is_unpacked(tmp_path: Path) -> None:
    plain = read(FakeEngine(archive([LOWER], "older")), tmp_path / "plain")
    assert read(FakeEngine(archive([LOWER], "oci", zstd)), tmp_path / "packed") == plain
    for broken in (zstd(LOWER)[:-20], zstd(LOWER)[:4] + bytes(100)):
        with pytest.raises(UserError, match="sent only a part"):
            read(FakeEngine(archive([LOWER], "oci", lambda _, data=broken: data)), tmp_path / "broken")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (METADATA, True),
        ("var/lib/dpkg/status", True),
        ("var/lib/dpkg/info/libc6:amd64.list", True),
        ("usr/share/doc/libc6/copyright", True),
        ("opt/x/setuptools/_vendor/wheel-0.45.1.dist-info/licenses/LICENSE.txt", True),
        ("usr/lib/python3/dist-packages/six.egg-info", True),
        ("opt/berth/versions", True),
        ("opt/x/opt/berth/versions", False),
        ("opt/x/rich/__init__.py", False),
        ("usr/share/doc/libc6/changelog.gz", False),
        ("var/lib/dpkg/info/libc6:amd64.postinst", False),
    ],
)
def test_is_record(path: str, expected: bool) -> None:
    assert is_record(path) is expected
