"""One blob of four parts, and functions that send and read it with a client."""

import hashlib
from collections.abc import Callable, Iterator

from berth.ecr.registry.client import Registry as Client
from berth.ecr.registry.manifest import digest_of

PART = 200_000
BLOB = hashlib.shake_256(b"a blob of four parts").digest(3 * PART + 50_000)
DIGEST = digest_of(BLOB)
MISSING = "sha256:" + "0" * 64


def open_blob() -> Iterator[bytes]:
    for start in range(0, len(BLOB), 33_333):
        yield BLOB[start : start + 33_333]


def send(client: Client, repository: str = "a/b", sent: Callable[[int], None] = lambda _: None) -> None:
    client.upload_blob(repository, DIGEST, len(BLOB), open_blob, sent)


def content(client: Client, repository: str = "a/b") -> bytes:
    return b"".join(client.read_blob(repository, DIGEST))
