"""Downloading files that no package index has: sources, errors, and no partial files."""

import base64
import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from berth.common.errors import UserError
from berth.images.network import build_files, downloads
from berth.images.network.build_files import WantedFile
from berth.images.network.downloads import FileSource
from berth.images.pins import pins
from tests.doubles.http_server import QuietHandler, serving

BYTES = b"the content of a file that is no package" * 1000
SHA256 = hashlib.sha256(BYTES).hexdigest()
SIGNATURE = b"\x88\x75 a signature"
FILE = pins.PinnedFile("efa", "1.0", "efa-1.0.tar.gz", "", SHA256, key_url="http://x/efa.key", key_fingerprint="4E90")
WANTED = build_files.with_signature(FILE)[0]


class Mirror(QuietHandler):
    """A file server with faults: its first `drops` answers break off in the middle; `status` replaces 200."""

    content: ClassVar[dict[str, bytes]] = {}
    paths: ClassVar[list[str]] = []
    drops = 0
    status = 200
    password = ""

    def do_GET(self) -> None:
        self.paths.append(self.path)
        body = self.content.get(self.path)
        allowed = base64.b64encode(self.password.encode()).decode()
        if self.password and self.headers.get("Authorization") != f"Basic {allowed}":
            self.send_error(401)
        elif self.status != 200:
            self.send_error(self.status)
        elif body is None:
            self.send_error(404)
        else:
            half = type(self).drops > 0
            type(self).drops -= half
            headers = {"Content-Length": str(len(body)), "Content-Encoding": "gzip"}  # as some send for every .tar.gz
            self.answer(200, body[: len(body) // 2] if half else body, headers)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSES_S", (0, 0))


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an HTTP mirror that has all files."""
    monkeypatch.setattr(Mirror, "content", {"/files/efa-1.0.tar.gz": BYTES, "/files/efa-1.0.tar.gz.sig": SIGNATURE})
    Mirror.content["/files/efa.key"] = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n"
    for name, value in {"paths": [], "drops": 0, "status": 200, "password": ""}.items():
        monkeypatch.setattr(Mirror, name, value)
    with serving(Mirror) as address:
        yield f"{address}/files"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A mirror that is a folder."""
    made = tmp_path / "mirror"
    made.mkdir()
    (made / "efa-1.0.tar.gz").write_bytes(BYTES)
    (made / "efa-1.0.tar.gz.sig").write_bytes(SIGNATURE)
    (made / "efa.key").write_bytes(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n")
    return made


@pytest.mark.parametrize("kind", ["mirror", "folder"])
def test_mirror_provides_all_files_of_a_part(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = FileSource(downloads.mirror(str(request.getfixturevalue(kind))))
    wants = build_files.with_signature(FILE)
    assert source.missing(wants) == []
    shown: list[tuple[int, int]] = []
    for want in wants:
        source.fetch(want, tmp_path / "cache", print, lambda _, size, total: shown.append((size, total)))
    assert (tmp_path / "cache" / "efa-1.0.tar.gz").read_bytes() == BYTES
    assert (len(BYTES), len(BYTES)) in shown
    assert sorted(os.listdir(tmp_path / "cache")) == ["efa-1.0.tar.gz", "efa-1.0.tar.gz.sig", "efa.key"]
    assert all(build_files.find_valid_file(want, [tmp_path / "cache"], print) for want in wants)


def test_file_is_fetched_from_its_own_url_without_a_mirror(mirror: str, tmp_path: Path) -> None:
    want = replace(WANTED, url=f"{mirror}/efa-1.0.tar.gz")
    assert FileSource().fetch(want, tmp_path, print).read_bytes() == BYTES


def test_with_a_mirror_no_other_host_is_asked(mirror: str, folder: Path, tmp_path: Path) -> None:
    (folder / "efa-1.0.tar.gz").unlink()
    with pytest.raises(UserError, match="does not have efa-1"):
        FileSource(str(folder)).fetch(replace(WANTED, url=f"{mirror}/efa-1.0.tar.gz"), tmp_path / "cache", print)
    assert Mirror.paths == []


def fetch_error(source: FileSource, want: WantedFile, tmp_path: Path) -> str:
    """The error of fetching a file; checks that no file is left."""
    with pytest.raises(UserError) as refusal:
        source.fetch(want, tmp_path / "cache", print)
    assert os.listdir(tmp_path / "cache") == []
    return str(refusal.value)


def test_file_missing_on_mirror_is_reported(mirror: str, folder: Path, tmp_path: Path) -> None:
    del Mirror.content["/files/efa-1.0.tar.gz.sig"]
    (folder / "efa-1.0.tar.gz.sig").unlink()
    for place in (mirror, str(folder)):
        assert FileSource(place).missing(build_files.with_signature(FILE)) == [
            f"the mirror {place} does not have efa-1.0.tar.gz.sig, which efa 1.0 needs: put it there, or build with "
            "--without efa."
        ]
    assert "put it there" in fetch_error(FileSource(mirror), build_files.with_signature(FILE)[1], tmp_path)


def test_url_that_does_not_exist_is_reported(mirror: str, tmp_path: Path) -> None:
    message = fetch_error(FileSource(), replace(WANTED, url=f"{mirror}/other.tar.gz"), tmp_path)
    assert message == (
        f"{mirror}/other.tar.gz does not exist: fix its url in docker/pins.toml, give --mirror, or build with "
        "--without efa."
    )


def test_file_without_url_needs_a_mirror(tmp_path: Path) -> None:
    assert fetch_error(FileSource(), WANTED, tmp_path) == (
        "efa 1.0 has no url in docker/pins.toml: give --mirror FOLDER|URL that has efa-1.0.tar.gz, or build with "
        "--without efa."
    )


@pytest.mark.parametrize("kind", ["mirror", "folder"])
def test_wrong_hash_is_refused(kind: str, tmp_path: Path, request: pytest.FixtureRequest, folder: Path) -> None:
    place = str(request.getfixturevalue(kind))
    Mirror.content["/files/efa-1.0.tar.gz"] = b"other"
    (folder / "efa-1.0.tar.gz").write_bytes(b"other")
    message = fetch_error(FileSource(place), WANTED, tmp_path)
    digest = hashlib.sha256(b"other").hexdigest()
    assert message.startswith(f"efa-1.0.tar.gz from {place}/efa-1.0.tar.gz is not the pinned file, and was")
    assert f"its sha256 is {digest}, but docker/pins.toml has {SHA256}" in message


def test_html_page_is_refused_as_signature(mirror: str, tmp_path: Path) -> None:
    Mirror.content["/files/efa-1.0.tar.gz.sig"] = b"<!DOCTYPE html>"
    assert "it is not an OpenPGP file" in fetch_error(FileSource(mirror), build_files.with_signature(FILE)[1], tmp_path)


def test_dropped_connection_is_retried(mirror: str, tmp_path: Path) -> None:
    Mirror.drops = 2
    assert FileSource(mirror).fetch(WANTED, tmp_path, print).read_bytes() == BYTES
    assert len(Mirror.paths) == 3


def test_repeatedly_dropped_connection_is_reported(mirror: str, tmp_path: Path) -> None:
    Mirror.drops = 9
    message = fetch_error(FileSource(mirror), WANTED, tmp_path)
    assert message.startswith(f"efa-1.0.tar.gz can't be fetched from the mirror {mirror} (")
    assert "IncompleteRead" in message or "bytes read" in message
    assert len(Mirror.paths) == 3


@pytest.mark.parametrize(("status", "message", "times"), [(403, "answers 403 Forbidden for efa", 1), (503, "503", 3)])
def test_http_errors_are_reported(status: int, message: str, times: int, mirror: str, tmp_path: Path) -> None:
    Mirror.status = status
    assert message in fetch_error(FileSource(mirror), WANTED, tmp_path)
    assert len(Mirror.paths) == times


def test_unreachable_mirror_is_named_once_without_password() -> None:
    assert FileSource("http://user:secret@127.0.0.1:9/files").missing(build_files.with_signature(FILE)) == [
        "efa-1.0.tar.gz can't be fetched from the mirror http://127.0.0.1:9/files (Connection refused): check the "
        "network, give --mirror FOLDER|URL that has it, or build with --without efa."
    ]


def test_mirror_login_from_netrc(mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mirror, "password", "me:s3cret")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert FileSource(downloads.mirror(mirror)).fetch(WANTED, tmp_path, lambda _: None).read_bytes() == BYTES


def test_mirror_password_is_used_but_not_shown(mirror: str, tmp_path: Path) -> None:
    Mirror.password = "user:secret"
    place = mirror.replace("//", "//user:secret@")
    lines: list[str] = []
    FileSource(place).fetch(WANTED, tmp_path, lines.append)
    assert lines[0] == f"fetching efa-1.0.tar.gz from {mirror}/efa-1.0.tar.gz"
    assert lines[1].startswith("fetched efa-1.0.tar.gz: 0.0 MB in ")
    message = FileSource(mirror.replace("//", "//user:wrong@")).missing([WANTED])
    assert message[0].startswith(
        f"the mirror {mirror} answers 401 Unauthorized for efa-1.0.tar.gz: check that it may be"
    )


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "is full, and efa-1.0.tar.gz does not fit"),
        (KeyboardInterrupt(), ""),
    ],
    ids=["full-disk", "ctrl-c"],
)
def test_interrupted_fetch_leaves_no_file(fault: BaseException, message: str, folder: Path, tmp_path: Path) -> None:
    def show(*_: object) -> None:
        assert os.listdir(tmp_path / "cache") == [f".{WANTED.name}.{os.getpid()}"]
        raise fault

    with pytest.raises(UserError if message else KeyboardInterrupt, match=message or None):
        FileSource(str(folder)).fetch(WANTED, tmp_path / "cache", print, show)
    assert os.listdir(tmp_path / "cache") == []


def test_unreadable_file_of_mirror_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / WANTED.name).unlink()
    (folder / WANTED.name).symlink_to("/proc/self/mem")
    message = fetch_error(FileSource(str(folder)), WANTED, tmp_path)
    assert message.startswith(
        f"{folder / WANTED.name} can't be read (Input/output error): make it readable for this user"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://user:secret@mirror/files", "the mirror ftp://mirror/files is neither a folder nor an http(s) address"),
        ("/no/such/folder", "the mirror /no/such/folder is not a folder here: mount it"),
        ("~nouser/x", "the mirror ~nouser/x is in the home of an unknown user: give its full path."),
        ("/" + "x" * 300, f"the mirror /{'x' * 300} can't be read (File name too long): make it readable for"),
        ("https://u:p@mirror/files?token=secret", "the mirror https://mirror/files has a query or a fragment, but"),
        ("https://mirror/files#secret", "the mirror https://mirror/files has a query or a fragment, but"),
    ],
)
def test_invalid_mirror_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as refusal:
        downloads.mirror(text)
    assert str(refusal.value).startswith(message)
