"""Unpacking a model.tar.gz that anybody may have made: regular files and folders below one new folder, nothing else.

Not `TarFile.extractall`: Debian 12's Python 3.11.2 knows no extraction filters (they came with 3.11.4), and the filter
`data` lets a chain of links write elsewhere before 3.11.13, 3.12.11 and 3.13.4 (CVE-2025-4517). Here no link is ever
made, so no name can lead out of the folder. Headers are read by `tarfile`, through a reader that bounds them: a header
may claim gigabytes, or a negative size that makes some versions read for ever (CVE-2025-8194).
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
"""Of one file's headers, long names and attributes included; real ones have a few kilobytes."""
_PIECE = 1024 * 1024
_SHOWN_NAME = 200


class ArchiveError(ValueError):
    """The archive is not unpacked, and nothing of it is left behind; the message is one sentence for the user."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What an archive may hold: a small one can name more bytes than a disk has."""

    size: int = 64 * 2**30
    """Bytes of all files together, unpacked."""
    entries: int = 100_000
    """Files and folders."""
    spare: int = 2**30
    """Bytes that stay free on the disk."""


DEFAULT_LIMITS = ArchiveLimits()


def unpack(archive: Path, folder: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> None:
    """Unpacks `archive`, a tar file with gzip around it or without, into `folder`, which must not exist yet.

    A file that its owner may run stays executable; owners, times and all other attributes are not taken over. Raises
    ArchiveError, and removes `folder`, if the archive is damaged, holds links, devices or names that lead out of the
    folder, or more than `limits`.
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
        raise ArchiveError(f"{archive} is refused, for {reason}.") from None
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, RecursionError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        why = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0].rstrip(".:")
        raise ArchiveError(
            f"{archive} can't be unpacked ({why or type(error).__name__}): pass a whole model.tar.gz, or a folder."
        ) from None


class _Refused(Exception):
    """The end of a sentence: why an archive is not taken."""


class _Bounded(io.RawIOBase):
    """The tar file's bytes, of which headers may take `left` until the next file begins."""

    def __init__(self, plain: BinaryIO) -> None:
        self.plain = plain
        self.left = _HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        # Whatever tarfile reads by itself is a header, and in one piece: a negative size would be all that is left.
        if not 0 <= size <= self.left:
            raise _Refused("one of its headers is larger than any that a file needs")
        self.left -= size
        return self.plain.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET and offset < self.plain.tell():
            raise _Refused("one of its headers leads backwards")
        return self.plain.seek(offset, whence)

    def tell(self) -> int:
        return self.plain.tell()

    def content(self, size: int) -> bytes:
        """The next bytes of a file's content; EOFError where there are none."""
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
            tar.members = []  # type: ignore[attr-defined]  # it keeps every header that it has read
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
                    raise _Refused(f"its files have more than the {free:,} bytes that the disk can take")
                target.parent.mkdir(parents=True, exist_ok=True)
                _write(bounded, member, target)
            bounded.left = _HEADER_BYTES
    _check_end(plain)


def _inner_name(member: tarfile.TarInfo) -> PurePosixPath:
    """The member's name, relative to the folder; _Refused unless it is a plain file or a folder in there."""
    shown = repr(member.name[:_SHOWN_NAME])
    if member.issym() or member.islnk():
        raise _Refused(f"it holds the link {shown}: pack the files themselves (tar -h)")
    # A sparse file is a regular one to tarfile, with its content elsewhere than behind its header.
    if not (member.isdir() or (member.isreg() and not member.issparse())):
        raise _Refused(f"{shown} in it is neither a file nor a folder")
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or (member.isreg() and not name.parts):
        raise _Refused(f"it reaches out of its own folder with {shown}")
    return name


def _write(bounded: _Bounded, member: tarfile.TarInfo, target: Path) -> None:
    left = member.size
    bounded.seek(member.offset_data)
    with target.open("wb") as file:  # a name that comes twice: the later file counts, as tar has it
        while left:
            left -= file.write(bounded.content(left))
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _check_begin(plain: BinaryIO) -> None:
    """ReadError unless the first block is a header, or the zeros that stand at the end of an empty archive."""
    block = plain.read(tarfile.BLOCKSIZE)
    plain.seek(0)
    try:
        if block.strip(b"\0") or len(block) < tarfile.BLOCKSIZE:
            tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
    except tarfile.TarError:
        raise tarfile.ReadError("it is not a .tar.gz archive") from None


def _check_end(plain: BinaryIO) -> None:
    """Reads on to the end: gzip's checksum stands there, and tarfile takes a broken header for the end."""
    while piece := plain.read(_PIECE):
        if piece.strip(b"\0"):
            raise tarfile.ReadError("a header in it is damaged")
