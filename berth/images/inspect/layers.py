"""Reads an image's layers from the archive of `docker save`: the step that made each, and its size plain and gzipped.

Reads both forms of the archive: the older one (manifest.json and layer.tar files) and the OCI layout of newer engines.
An engine may store layers with gzip or zstd at any level, so sizes are always measured from the plain bytes. They are
the same on every engine.
"""

import gzip
import json
import re
import subprocess
import tarfile
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

from docker.errors import APIError
from docker.models.images import Image
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from berth.common.errors import UserError
from berth.common.files import explain_os_errors

_CHUNK = 1 << 20
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""The first bytes of a compressed layer."""
_SAVED = "image-"
_STALE_S = 3600.0
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


@contextmanager
def saved_archive(image: Image, name: str, folder: Path) -> Iterator[Path]:
    """The archive of `docker save` of an image, in `folder` until the end of the `with` block.

    UserError if the engine can't export the image, if the disk is full, or if the block finds that the archive is
    incomplete.
    """
    with explain_os_errors(folder, "the image"):
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f"{_SAVED}*"):  # left by killed processes, a gigabyte each
            if time.time() - stale.stat().st_mtime > _STALE_S:
                stale.unlink(missing_ok=True)
        try:
            with tempfile.NamedTemporaryFile(dir=folder, prefix=_SAVED, suffix=".tar") as file:
                for chunk in image.save(chunk_size=_CHUNK):
                    file.write(chunk)
                file.flush()
                yield Path(file.name)
        except APIError as error:
            reason = str(error.explanation or error).rstrip(".")
            raise UserError(
                f"the engine can't export {name}: {reason}; check that its disk has room for a copy of the image."
            ) from None
        except (RequestException, HTTPError, tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile):
            raise UserError(
                f"the engine sent only a part of {name}: check that it still runs, then run the command again."
            ) from None


def saved_layers(archive: Path) -> list[tuple[SavedLayer, str]]:
    """The layers in `archive`, lowest first, each with the name of its member."""
    with tarfile.open(archive) as tar:
        manifest = json.load(_open_member(tar, "manifest.json"))[0]
        config = json.load(_open_member(tar, manifest["Config"]))
    diff_ids: list[str] = config["rootfs"]["diff_ids"]
    made_by = layer_labels(config.get("history", []), len(diff_ids))
    return [(SavedLayer(*each), name) for *each, name in zip(diff_ids, made_by, manifest["Layers"], strict=True)]


def _open_member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """Opens a file of an archive, also by a link: the older form stores a repeated layer once, with links to it."""
    try:
        file = tar.extractfile(name)
    except KeyError:
        raise tarfile.ReadError(f"no {name}: the archive ended before it") from None
    assert file is not None, "layers and documents are files or links to files"
    return file


def read_layers(archive: Path, known: Mapping[str, tuple[int, int]], step: Callable[[str], None]) -> list[Layer]:
    """The layers in `archive`, lowest first.

    known: digest → (size, compressed) of layers that were measured before. step: called after each layer.
    """
    saved = saved_layers(archive)

    def size_of(number: int) -> tuple[int, int]:
        layer, member = saved[number]
        size = known.get(layer.diff_id) or measure_layer(archive, member)
        step(f"layer {number + 1} of {len(saved)} is measured")
        return size

    # zlib releases the interpreter's lock, so threads are enough.
    with ThreadPoolExecutor(2) as pool:
        sizes = list(pool.map(size_of, range(len(saved))))
    return [Layer(layer.diff_id, layer.made_by, *size) for (layer, _), size in zip(saved, sizes, strict=True)]


def measure_layer(archive: Path, member: str) -> tuple[int, int]:
    """(size, compressed) in bytes of a layer in `archive`: plain, and gzipped at level 6, whatever its compression in
    the archive.
    """
    worker = zlib.compressobj(_LEVEL, wbits=31)
    size = compressed = 0
    with plain_layer(archive, member) as layer:
        while chunk := layer.read(_CHUNK):
            size += len(chunk)
            compressed += len(worker.compress(chunk))
    return size, compressed + len(worker.flush())


@contextmanager
def plain_layer(archive: Path, member: str) -> Iterator[IO[bytes]]:
    """The plain tar of a layer, which may be compressed in `archive`.

    Python supports zstd from 3.14 on; until then, the program `zstd` unpacks it.
    """
    with tarfile.open(archive) as tar:
        reader = _open_member(tar, member)
        head = reader.read(len(ZSTD))
        reader.seek(0)
        if head.startswith(GZIP):
            unpacked: Any = gzip.GzipFile(fileobj=reader)
            yield unpacked
        elif head == ZSTD:
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
