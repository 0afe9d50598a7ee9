"""Unpacks a model.tar.gz from an untrusted source: only regular files and folders, below one new folder.

`TarFile.extractall` is not safe enough: Debian 12's Python 3.11.2 has no extraction filters (new in 3.11.4), and before
3.11.13, 3.12.11 and 3.13.4 the filter `data` lets a chain of links write elsewhere (CVE-2025-4517). This module never
creates a link, so no name can lead out of the folder. `tarfile` reads the headers through a reader that bounds them: a
header may claim gigabytes, or a negative size with which some versions read forever (CVE-2025-8194).
"""

import gzip
import io
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

_GZIP_MAGIC = b"\x1f\x8b"
_HEADER_BYTES = 256 * 1024
"""Limit of the headers of one file, long names and attributes included; real ones have a few kilobytes."""
_PIECE = 1024 * 1024
_SHOWN_NAME = 200


class ArchiveError(ValueError):
    """The archive was not unpacked, and no file of it is left; the message is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Limits of an unpacked archive: a small archive can unpack to more bytes than the disk has."""

    size: int = 64 * 2**30
    """Total bytes of the unpacked files."""
    entries: int = 100_000
    """Number of files and folders."""
    spare: int = 2**30
    """Bytes that must stay free on the disk."""


DEFAULT_LIMITS = ArchiveLimits()


def unpack(archive: Path, folder: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> None:
    """Unpacks `archive`, a tar file with or without gzip, into `folder`, which must not exist yet.

    Files that are executable for their owner stay executable; owners, times and other attributes are dropped. Raises
    ArchiveError and removes `folder` if the archive is damaged, exceeds `limits`, or holds links, devices or names that
    lead out of the folder.
    """
    folder.mkdir(parents=True)
    try:
        with archive.open("rb") as raw:
            packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            raw.seek(0)
            plain = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
            _check_begin(plain)
            _unpack(plain, folder, limits)
    except _Refused as reason:
        shutil.rmtree(folder, ignore_errors=True)
        raise ArchiveError(f"{archive} can't be unpacked, because {reason}.") from None
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RecursionError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        why = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0].rstrip(".:")
        raise ArchiveError(
            f"{archive} can't be unpacked ({why or type(error).__name__}): pass a whole model.tar.gz, or a folder."
        ) from None


class _Refused(Exception):
    """The reason for refusing an archive; the message is the end of a sentence."""


class _Bounded(io.RawIOBase):
    """Reader of the tar file's bytes. The headers of the next file may have at most `left` more bytes."""

    def __init__(self, plain: BinaryIO) -> None:
        self.plain = plain
        self.left = _HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        # tarfile itself reads only headers, each with one call. A negative size would read the rest of the file.
        if not 0 <= size <= self.left:
            raise _Refused("one of its headers is larger than any real file's")
        self.left -= size
        return self.plain.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET and offset < self.plain.tell():
            raise _Refused("one of its headers points backwards")
        return self.plain.seek(offset, whence)

    def tell(self) -> int:
        return self.plain.tell()

    def content(self, size: int) -> bytes:
        """The next bytes of a file's content; EOFError at the end of the archive."""
        piece = self.plain.read(min(size, _PIECE))
        if not piece:
            raise EOFError("it ends in the middle of a file")
        return piece


def _unpack(plain: BinaryIO, folder: Path, limits: ArchiveLimits) -> None:
    bounded = _Bounded(plain)
    free = max(0, shutil.disk_usage(folder).free - limits.spare)
    size = entries = 0
    with tarfile.open(fileobj=cast(BinaryIO, bounded), mode="r:") as tar:
        while (member := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # tarfile would keep every header
            entries += 1
            if entries > limits.entries:
                raise _Refused(f"it holds more than {limits.entries:,} files and folders")
            target = folder / _inner_name(member)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            else:
                size += member.size
                if member.size < 0:
                    raise tarfile.ReadError("a header in it is damaged")
                if size > limits.size:
                    raise _Refused(f"its files have more than {limits.size:,} bytes")
                if size > free:
                    raise _Refused(f"its files need more than the {free:,} bytes that the disk has to spare")
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(bounded, member, target)
            bounded.left = _HEADER_BYTES
    _check_end(plain)


def _inner_name(member: tarfile.TarInfo) -> PurePosixPath:
    """The member's name, relative to the folder; _Refused unless it is a plain file or folder below it."""
    shown = repr(member.name[:_SHOWN_NAME])
    if member.issym() or member.islnk():
        raise _Refused(f"it holds the link {shown}: pack the files themselves (tar -h)")
    # tarfile counts a sparse file as a regular one, but its content does not follow its header directly.
    if not (member.isdir() or (member.isreg() and not member.issparse())):
        raise _Refused(f"{shown} in it is neither a file nor a folder")
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or (member.isreg() and not name.parts):
        raise _Refused(f"it reaches out of its own folder with {shown}")
    return name


def _write(bounded: _Bounded, member: tarfile.TarInfo, target: Path) -> None:
    left = member.size
    bounded.seek(member.offset_data)
    with target.open("wb") as file:  # if a name occurs twice the later file wins, as in tar
        while left:
            left -= file.write(bounded.content(left))
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _check_begin(plain: BinaryIO) -> None:
    """ReadError unless the first block is a header, or zeros (an empty archive)."""
    block = plain.read(tarfile.BLOCKSIZE)
    plain.seek(0)
    try:
        if block.strip(b"\0") or len(block) < tarfile.BLOCKSIZE:
            tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
    except tarfile.TarError:
        raise tarfile.ReadError("it is not a .tar.gz archive") from None


def _check_end(plain: BinaryIO) -> None:
    """Reads to the end, to verify gzip's checksum and because tarfile takes a broken header for the end."""
    while piece := plain.read(_PIECE):
        if piece.strip(b"\0"):
            raise tarfile.ReadError("a header in it is damaged")
