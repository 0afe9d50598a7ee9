"""Uploads a blob to a registry, in parts; after a dropped connection it resumes with what the registry has.

By the OCI distribution specification's "Pushing a blob in chunks": each part is a PATCH, and a GET of the upload's URL
returns how much has arrived. A blob that fits into one part is sent with one PUT.

The distribution registry signs that number into the URL of each answer. There the blob begins again if a part is cut
off or its answer is lost, but not if a part was refused because of an expired token or with 429.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from berth.common.errors import UserError
from berth.ecr.registry import challenge
from berth.ecr.registry.errors import LOST_UPLOAD, RegistryAnswer, sentence
from berth.ecr.registry.transport import RegistryRequest, RetryableError, Transport

PART = 10 << 20
"""Bytes of a part, which is held in memory: the maximum of ECR's UploadLayerPart, and above S3's minimum of 5 MiB."""
_LARGEST_PART = 512 << 20

OpenAt = Callable[[int], Iterator[bytes]]
"""`open_at(offset)`: the blob's bytes from there on; may be called several times."""


@dataclass
class Upload:
    """The upload of a blob of `size` bytes; call `run` once.

    sent: called with the bytes that have arrived, a number that may decrease; wire: bytes put on the wire so far,
    retries included.
    """

    transport: Transport
    repository: str
    digest: str
    size: int
    open_at: OpenAt
    sent: Callable[[int], None]
    wire: int = 0
    _part: int = 0
    _location: str = ""
    _offset: int = 0
    _resumed: bool = False

    def run(self) -> int:
        """Sends the blob and returns `wire`; UserError if it can't be sent."""
        source = _Source(self.open_at, self.digest, self.size)
        failures, farthest, sure = 0, 0, True
        while True:
            try:
                if not sure:
                    if self._arrived():
                        break
                    self._ask_offset()
                    sure = True
                if not self._location:
                    self._begin()
                self.sent(self._offset)
                while self._offset < self.size and self.size > self._part:
                    self._patch(source)
                    self.sent(self._offset)
                    if self._offset > farthest:
                        farthest, failures = self._offset, 0
                self._finish(source)
                break
            except RetryableError as dropped:
                self.transport.wait(dropped, failures)
                failures += 1
                sure = False
        self.sent(self.size)
        return self.wire

    @property
    def _action(self) -> str:
        return f"the push of {self.digest[:19]}"

    def _request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> RegistryAnswer:
        def count(sent: int) -> None:
            self.wire += sent

        named = {key.replace("_", "-"): value for key, value in headers.items()}
        scopes = challenge.push_scopes(self.repository)
        return self.transport.once(
            RegistryRequest(method, path, self._action, self.repository, scopes, named, body, count)
        )

    def _refuse(self, answer: RegistryAnswer) -> UserError:
        return UserError(sentence(self.transport.host, self.repository, self._action, answer))

    def _begin(self) -> None:
        answer = self._request("POST", f"/v2/{self.repository}/blobs/uploads/")
        if answer.status != 202 or not self._moved(answer):
            raise self._refuse(answer)
        self._offset, self._resumed = 0, False
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        self._part = max(PART, int(least)) if least.isdecimal() and int(least) <= _LARGEST_PART else PART

    def _moved(self, answer: RegistryAnswer) -> bool:
        """Takes the URL of the next request from an answer; it may change each time. Whether there is one."""
        location = answer.headers.get("Location", "")
        self._location = self.transport.absolute(location) if location else self._location
        return bool(self._location)

    def _patch(self, source: "_Source") -> None:
        part = source.read(self._offset, self._part)
        end = self._offset + len(part)
        answer = self._request(
            "PATCH",
            self._location,
            part,
            Content_Type="application/octet-stream",
            Content_Range=f"{self._offset}-{end - 1}",
        )
        if answer.status not in (202, 204):  # some older registries answer 204
            raise self._lost(answer) or self._refuse(answer)
        self._moved(answer)
        has = _has(answer)
        self._offset = has if has is not None and has < end else end

    def _finish(self, source: "_Source") -> None:
        """Ends the upload; the request has the blob itself if it is one part."""
        body = source.read(self._offset, self.size - self._offset)
        source.end()
        address = self._location + ("&" if "?" in self._location else "?") + urlencode({"digest": self.digest})
        answer = self._request("PUT", address, body or None, Content_Type="application/octet-stream")
        if answer.status == 201:
            return
        if "DIGEST_INVALID" in answer.codes and self._resumed:
            # The offset of a resumed upload may have been wrong: begin again. Otherwise a retry would not help.
            self._location = ""
            raise RetryableError(str(self._refuse(answer)), answer.message)
        raise self._lost(answer) or self._refuse(answer)

    def _lost(self, answer: RegistryAnswer) -> RetryableError | None:
        """A RetryableError if the registry has lost the upload, or its offset."""
        if answer.status == 416 or any(code in LOST_UPLOAD for code in answer.codes):
            return RetryableError(str(self._refuse(answer)), answer.message)
        return None

    def _arrived(self) -> bool:
        """Whether the registry has the whole blob: only the answer to the last request may have been lost."""
        return self._request("HEAD", f"/v2/{self.repository}/blobs/{self.digest}").status == 200

    def _ask_offset(self) -> None:
        """Asks the registry how much has arrived; if it does not know, the upload begins again."""
        if not self._location:
            return
        answer = self._request("GET", self._location)
        has = _has(answer) if answer.status in (200, 204) else None
        if has is None or has > self.size:
            self._location = ""
        else:
            self._offset = has
            self._resumed = has > 0
            self._moved(answer)


def _has(answer: RegistryAnswer) -> int | None:
    """Bytes that have arrived, by the Range header (`0-0`: none); None without a valid header."""
    found = re.fullmatch(r"(?:bytes=)?0-(\d+)", answer.headers.get("Range", "").strip())
    if not found:
        return None
    return int(found[1]) + 1 if int(found[1]) else 0


class _Source:
    """The blob's bytes by offset. Continues reading if possible; keeps the last part, which a retry may need again."""

    def __init__(self, open_at: OpenAt, digest: str, size: int) -> None:
        self._open_at = open_at
        self._digest = digest
        self._size = size
        self._pieces: Iterator[bytes] | None = None
        self._at = 0
        self._left = b""
        self._kept = (0, b"")

    def read(self, offset: int, most: int) -> bytes:
        """`most` bytes from `offset`, fewer only at the blob's end; UserError if the source ends too early."""
        want = min(most, self._size - offset)
        if self._kept[0] == offset and len(self._kept[1]) == want:
            return self._kept[1]
        if self._pieces is None or self._at != offset:
            self._pieces, self._at, self._left = self._open_at(offset), offset, b""
        found = bytearray(self._left)
        while len(found) < want:
            piece = next(self._pieces, None)
            if piece is None:
                raise self._wrong(f"ends after {offset + len(found)} of {self._size} bytes")
            found += piece
        self._left = bytes(found[want:])
        self._at = offset + want
        self._kept = (offset, bytes(found[:want]))
        return self._kept[1]

    def end(self) -> None:
        """UserError if the source has more bytes. Reading to its end also lets the source check the digest."""
        if self._pieces is None:
            return
        if self._left or any(self._pieces):
            raise self._wrong(f"has more than its {self._size} bytes")
        self._pieces = None

    def _wrong(self, how: str) -> UserError:
        return UserError(f"the source of {self._digest} {how}, so it is damaged: build or push it again.")
