"""Reads an image's layers from the archive of `docker save`: the step that made each, and its size plain and gzipped.

Reads both forms of the archive: the older one (manifest.json and layer.tar files) and the OCI layout of newer engines.
An engine may store layers with gzip or zstd at any level, so sizes are always measured from the plain bytes. They are
the same on every engine.
"""

import gzip
import io
import json
import posixpath
import re
import subprocess
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

from berth.common.errors import UserError

_CHUNK = 1 << 20
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""The first bytes of a compressed layer."""
# The gzip level with which engines push.
_LEVEL = 6
_LABEL_LENGTH = 60
# A step that changes only the image's config, as written by BuildKit or the older builder.
_NO_LAYER = re.compile(
    r"(/bin/sh -c #\(nop\) +)?(ENV|LABEL|ARG|CMD|ENTRYPOINT|USER|EXPOSE|VOLUME|STOPSIGNAL|HEALTHCHECK|ONBUILD|SHELL)\b"
)
_YOURS = "yours: "
"""Prefix for layers that a user added to one of berth's images."""
# A layer of berth; the word after the script is its name.
_OURS = re.compile(r"/tmp/layer/install\.sh (\w+)\b")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its digest (of the plain tar), the step that made it, and its sizes in bytes."""

    digest: str
    made_by: str
    size: int
    compressed: int


@dataclass(frozen=True, slots=True)
class SavedLayer:
    """A layer in an archive: the sha256 of its plain tar, and the step that made it."""

    diff_id: str
    made_by: str


def saved_layers(read: Callable[[str], bytes], links: Mapping[str, str]) -> list[tuple[SavedLayer, str]]:
    """The layers of an archive, lowest first, each with the name of its member.

    read: returns the bytes of a member by name; links: targets of the archive's links by name. The older form stores a
    repeated layer once, with links to it.
    """
    manifest = json.loads(read("manifest.json"))[0]
    config = json.loads(read(posixpath.normpath(manifest["Config"])))
    diff_ids: list[str] = config["rootfs"]["diff_ids"]
    made_by = layer_labels(config.get("history", []), len(diff_ids))
    names = [_followed(links, posixpath.normpath(name)) for name in manifest["Layers"]]
    return [(SavedLayer(*each), name) for *each, name in zip(diff_ids, made_by, names, strict=True)]


def link_target(name: str, target: str) -> str:
    """The name of the member that an archive's link `name` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _followed(links: Mapping[str, str], name: str) -> str:
    return _followed(links, links[name]) if name in links else name


def read_layers(archive: Path, known: Mapping[str, tuple[int, int]], step: Callable[[str], None]) -> list[Layer]:
    """The layers in `archive`, lowest first.

    known: digest → (size, compressed) of layers that were measured before. step: called after each layer.
    """
    with tarfile.open(archive) as tar:
        members = {posixpath.normpath(each.name): each for each in tar}
        links = {name: link_target(name, each.linkname) for name, each in members.items() if each.issym()}
        saved = saved_layers(lambda name: _content(tar, members[name]), links)

    def size_of(number: int) -> tuple[int, int]:
        layer, member = saved[number]
        size = known.get(layer.diff_id) or measure_layer(archive, members[member].offset_data, members[member].size)
        step(f"layer {number + 1} of {len(saved)} is measured")
        return size

    # zlib releases the interpreter's lock, so threads are enough.
    with ThreadPoolExecutor(2) as pool:
        sizes = list(pool.map(size_of, range(len(saved))))
    return [Layer(layer.diff_id, layer.made_by, *size) for (layer, _), size in zip(saved, sizes, strict=True)]


def measure_layer(archive: Path, offset: int, length: int) -> tuple[int, int]:
    """(size, compressed) in bytes of the layer at `offset` in `archive`: plain, and gzipped at level 6, whatever its
    compression in the archive.
    """
    worker = zlib.compressobj(_LEVEL, wbits=31)
    size = compressed = 0
    reader = io.BufferedReader(PieceReader(_pieces(archive, offset, length)), _CHUNK)
    with plain_layer(reader, reader.peek(len(ZSTD))) as layer:
        while chunk := layer.read(_CHUNK):
            size += len(chunk)
            compressed += len(worker.compress(chunk))
    return size, compressed + len(worker.flush())


@contextmanager
def plain_layer(reader: IO[bytes], head: bytes) -> Iterator[IO[bytes]]:
    """The plain tar of a layer from `reader`, which may be compressed; head: its first bytes.

    Python supports zstd from 3.14 on; until then, the program `zstd` unpacks it.
    """
    if head.startswith(GZIP):
        unpacked: Any = gzip.GzipFile(fileobj=reader)
        yield unpacked
    elif head.startswith(ZSTD):
        with _unpacked_by_zstd(reader) as plain:
            yield plain
    else:
        yield reader


@contextmanager
def _unpacked_by_zstd(reader: IO[bytes]) -> Iterator[IO[bytes]]:
    try:
        process = subprocess.Popen(["zstd", "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=_CHUNK)
    except FileNotFoundError:
        raise UserError(
            "A layer is packed with zstd, and this machine has no program for that: `apt-get install zstd`, then run "
            "the command again."
        ) from None
    assert process.stdin is not None
    assert process.stdout is not None
    feeder = threading.Thread(target=_feed, args=(reader, process.stdin), daemon=True)
    try:
        feeder.start()
        yield process.stdout
    finally:
        process.stdout.close()
        feeder.join()
        if process.wait() > 0:
            raise EOFError("zstd can't unpack the layer")


def _feed(reader: IO[bytes], target: IO[bytes]) -> None:
    try:
        with target:
            copyfileobj(reader, target, _CHUNK)
    except BrokenPipeError:  # the reader stopped, or the data is not zstd: see the exit code
        pass


def _pieces(archive: Path, offset: int, length: int) -> Iterator[bytes]:
    with archive.open("rb") as file:
        file.seek(offset)
        while length:
            piece = file.read(min(_CHUNK, length))
            if not piece:
                raise UserError(f"{archive} ends in the middle of a layer: is the disk full?")
            length -= len(piece)
            yield piece


class PieceReader(io.RawIOBase):
    """Pieces of bytes as a file that can be read once, in order."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter(pieces)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def layer_labels(history: Sequence[Mapping[str, Any]], count: int) -> list[str]:
    """Short names for `count` layers, from the image's history (lowest first, including steps without a layer)."""
    steps = [each.get("created_by") or each.get("comment") or "" for each in history if not each.get("empty_layer")]
    if len(steps) != count:
        return [""] * count
    ours = max((number for number, step in enumerate(steps) if _OURS.search(step)), default=count)
    return [f"{_YOURS * (number > ours)}{short_label(step)}" for number, step in enumerate(steps)]


def layer_names(history: Sequence[Mapping[str, Any]], digests: Sequence[str]) -> dict[str, str]:
    """The name of each layer by digest, from the engine's history of an image (newest first, including steps without a
    layer); empty if the history does not match the digests.
    """
    steps = [str(each.get("CreatedBy") or each.get("Comment") or "") for each in reversed(history)]
    made = layer_labels([{"created_by": step} for step in steps if not _NO_LAYER.match(step)], len(digests))
    return {digest: name for digest, name in zip(digests, made, strict=True) if name}


def short_label(created_by: str) -> str:
    """The name of berth's layer or of Debian's base; else the instruction without its usual prefix, cut to the width of
    a table column.
    """
    if ours := _OURS.search(created_by):
        return ours[1]
    text = re.sub(r"\s+", " ", created_by).strip()
    if re.match(r"(Imported from|# debian\.sh) ", text):
        return "base"
    text = re.sub(r"\s*# buildkit$", "", text)
    text = re.sub(r"^RUN (\|\d+ (\S+=\S* )*)?", "RUN ", text)
    text = re.sub(r"^(RUN )?/bin/sh -c (#\(nop\) )?", r"\1", text).strip()
    return text if len(text) <= _LABEL_LENGTH else text[: _LABEL_LENGTH - 1] + "…"


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None, "a JSON document is a file in every archive of docker save"
    return file.read()
