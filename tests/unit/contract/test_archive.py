"""Unpacks archives from untrusted sources: good ones completely, bad ones not at all, with an error.

`python FILE` runs the cases without pytest, as in the training image, which does not have it.
"""

import gzip
import io
import os
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from berth.contract.archive import ArchiveError, ArchiveLimits, unpack

Members = list[tuple[tarfile.TarInfo, bytes]]


def member(
    name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """One entry of an archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def tar(members: Members) -> bytes:
    """A plain tar file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def header(name: str, kind: bytes, size: int) -> bytes:
    """A header of GNU tar with any size, also a negative one."""
    info = tarfile.TarInfo(name)
    info.type = kind
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = bytes([0xFF if size < 0 else 0x80]) + size.to_bytes(11, "big", signed=True)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def climbing_links() -> Members:
    """The archive of CVE-2025-4517: folders and links whose path is too long to be resolved completely."""
    long = "d" * 247
    members, path = [], ""
    for step in "abcdefghijklmnop":
        members.append(member(path + long, kind=tarfile.DIRTYPE))
        members.append(member(path + step, kind=tarfile.SYMTYPE, link=long))
        path += long + "/"
    short = "/".join("abcdefghijklmnop")
    members.append(member(f"{short}/{'l' * 254}", kind=tarfile.SYMTYPE, link="../" * 16))
    members.append(member("escape", kind=tarfile.SYMTYPE, link=f"{short}/{'l' * 254}/../../outside"))
    members.append(member("escape/landed", b"here"))
    return members


SMALL = ArchiveLimits(size=1000, entries=5, spare=0)
WHOLE = tar([member("a", b"A" * 700), member("b", b"B" * 700)])
REFUSED: dict[str, tuple[bytes, str]] = {
    "parent": (tar([member("../outside", b"x")]), "reaches out of its own folder with '../outside'"),
    "parent in the middle": (tar([member("a/../../outside", b"x")]), "reaches out of its own folder"),
    "absolute": (tar([member("/outside", b"x")]), "reaches out of its own folder with '/outside'"),
    "link": (tar([member("in", kind=tarfile.SYMTYPE, link="/etc")]), "holds the link 'in': pack the files themselves"),
    "link that stays inside": (tar([member("in", kind=tarfile.SYMTYPE, link="a")]), "holds the link 'in'"),
    "hard link": (tar([member("in", kind=tarfile.LNKTYPE, link="/etc/passwd")]), "holds the link 'in'"),
    "device": (tar([member("null", kind=tarfile.CHRTYPE)]), "'null' in it is neither a file nor a folder"),
    "pipe": (tar([member("pipe", kind=tarfile.FIFOTYPE)]), "neither a file nor a folder"),
    "unknown kind": (tar([member("what", kind=b"Z")]), "is"),
    "chain of long links": (tar(climbing_links()), "holds the link"),
    "a bomb": (gzip.compress(tar([member("big", b"\0" * 1001)])), "its files have more than 1,000 bytes"),
    "many files that are a bomb together": (WHOLE, "its files have more than 1,000 bytes"),
    "too many entries": (tar([member(str(n)) for n in range(6)]), "more than 5 files and folders"),
    "a header of gigabytes": (header("x", tarfile.XHDTYPE, 2**40), "one of its headers is larger"),
    # The error depends on whether this Python has the fix of CVE-2025-8194.
    "a header of negative size": (header("x", tarfile.XHDTYPE, -1024) + WHOLE, "model.tar.gz "),
    "a file of negative size": (header("x", tarfile.REGTYPE, -1024) + WHOLE, "can't be unpacked ("),
    "thousands of names for one file": (header("x", tarfile.GNUTYPE_LONGNAME, 0) * 5000, "can't be unpacked"),
    "a file in a file": (tar([member("a", b"x"), member("a/b", b"x")]), "can't be unpacked"),
    "a name that is too long": (tar([member("x" * 300, b"x")]), "can't be unpacked"),
    "half of a tar file": (tar([member("a", os.urandom(900))])[:900], "can't be unpacked"),
    "half of a gzip file": (gzip.compress(os.urandom(100) + WHOLE)[:120], "can't be unpacked"),
    "a broken header": (WHOLE[:1536] + b"#" * 512 + WHOLE[2048:], "can't be unpacked (a header in it is damaged)"),
    "a broken checksum": (gzip.compress(tar([member("a", b"A")]))[:-8] + b"12345678", "can't be unpacked"),
    "no archive": (b"<html>404</html>", "(it is not a .tar.gz archive): pass a whole model.tar.gz, or a folder."),
    "a longer file that is no archive": (b"<html>404</html>" * 100, "it is not a .tar.gz archive"),
    "no archive in gzip": (gzip.compress(b"<html>404</html>" * 100), "it is not a .tar.gz archive"),
    "an empty file": (b"", "it is not a .tar.gz archive"),
}


def refused(folder: Path, packed: bytes) -> str:
    """The error for the archive `packed`; checks that no unpacked file is left."""
    archive = folder / "model.tar.gz"
    archive.write_bytes(packed)
    try:
        unpack(archive, folder / "deep" / "model", SMALL)
    except ArchiveError as error:
        remaining = [str(path.relative_to(folder)) for path in folder.rglob("*")]
        assert sorted(remaining) == ["deep", "model.tar.gz"], remaining
        sentence = str(error)
        assert sentence.startswith(f"{archive} ")
        assert sentence.endswith(".")
        assert "\n" not in sentence
        return sentence
    raise AssertionError("the archive was unpacked")


def unpacked(folder: Path) -> None:
    """A typical archive: some names start with ./, a file occurs twice, only the executable bit of modes is kept."""
    script = member("./code/run.sh", b"#!/bin/sh\n")
    script[0].mode = 0o6755
    entries = [
        member(".", kind=tarfile.DIRTYPE),
        member("config.json", b"old"),
        script,
        member("code/empty"),
        member("w/é" * 60, b"W"),
    ]
    for number, packed in enumerate((tar([*entries, member("config.json", b"{}")]),) * 2):
        archive = folder / f"{number}.tar.gz"
        archive.write_bytes(gzip.compress(packed) if number else packed)
        unpack(archive, folder / str(number), ArchiveLimits(size=1000, entries=6, spare=0))
        files = {
            str(path.relative_to(folder / str(number))): path
            for path in (folder / str(number)).rglob("*")
            if path.is_file()
        }
        assert sorted(files) == sorted(["code/empty", "code/run.sh", "config.json", "w/é" * 60]), sorted(files)
        assert files["config.json"].read_bytes() == b"{}"
        assert files["code/run.sh"].stat().st_mode & 0o7777 == 0o755
        assert files["config.json"].stat().st_mode & 0o7777 == 0o644


CASES: dict[str, Callable[[Path], object]] = {"a model is unpacked": unpacked}


def _refusal(packed: bytes, fact: str) -> Callable[[Path], object]:
    def case(folder: Path) -> None:
        assert fact in refused(folder, packed), refused(folder, packed)

    return case


CASES |= {name: _refusal(*case) for name, case in REFUSED.items()}

if __name__ == "__main__":
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as temporary:
            case(Path(temporary))
        print("ok:", name)
    print(sys.version_info[:3], len(CASES), "cases")
else:
    import pytest

    @pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
    def test_unpacking(case: Callable[[Path], object], tmp_path: Path) -> None:
        case(tmp_path)

    def test_archive_larger_than_free_disk_is_refused(tmp_path: Path) -> None:
        (tmp_path / "model.tar.gz").write_bytes(tar([member("a", b"x")]))
        with pytest.raises(ArchiveError, match="more than the 0 bytes that the disk has to spare"):
            unpack(tmp_path / "model.tar.gz", tmp_path / "model", ArchiveLimits(spare=2**62))
