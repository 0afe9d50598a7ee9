"""Uploads a blob to a registry, in parts; after a dropped connection or a refused part the blob is sent again.

By the OCI distribution specification's "Pushing a blob in chunks": each part is a PATCH. A blob that fits into one part
is sent with one PUT.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlencode

from berth.common.errors import UserError
from berth.ecr.registry import challenge
from berth.ecr.registry.errors import LOST_UPLOAD, RegistryAnswer, sentence
from berth.ecr.registry.transport import RegistryRequest, RetryableError, Transport

PART = 10 << 20
"""Bytes of a part, which is held in memory: the maximum of ECR's UploadLayerPart, and above S3's minimum of 5 MiB."""

OpenBlob = Callable[[], Iterator[bytes]]
"""Returns the blob's bytes from its beginning; may be called several times."""


@dataclass
class Upload:
    """The upload of a blob of `size` bytes; call `run` once.

    sent: called with the bytes that have arrived, a number that decreases when the upload starts again.
    """

    transport: Transport
    repository: str
    digest: str
    size: int
    open_blob: OpenBlob
    sent: Callable[[int], None]
    _location: str = ""

    def run(self) -> None:
        """Sends the blob; UserError if it can't be sent."""
        failures = 0
        while True:
            try:
                if not (failures and self._arrived()):
                    self._send()
                break
            except RetryableError as dropped:
                self.transport.wait(dropped, failures)
                failures += 1
        self.sent(self.size)

    def _arrived(self) -> bool:
        """Whether the registry has the whole blob: only the answer to the last request may have been lost."""
        return self._request("HEAD", f"/v2/{self.repository}/blobs/{self.digest}").status == 200

    def _send(self) -> None:
        self._begin()
        self.sent(0)
        if self.size <= PART:
            self._finish(b"".join(self._parts()))
            return
        offset = 0
        for part in self._parts():
            self._patch(offset, part)
            offset += len(part)
            self.sent(offset)
        self._finish(b"")

    def _begin(self) -> None:
        self._location = ""
        answer = self._request("POST", f"/v2/{self.repository}/blobs/uploads/")
        self._move(answer)
        if answer.status != 202 or not self._location:
            raise self._refuse(answer)

    def _patch(self, offset: int, part: bytes) -> None:
        content_range = f"{offset}-{offset + len(part) - 1}"
        answer = self._request("PATCH", self._location, part, Content_Range=content_range)
        if answer.status not in (202, 204):  # some older registries answer 204
            raise self._refuse(answer)
        self._move(answer)

    def _finish(self, body: bytes) -> None:
        """Ends the upload; body: the blob itself if it is one part."""
        address = self._location + ("&" if "?" in self._location else "?") + urlencode({"digest": self.digest})
        answer = self._request("PUT", address, body or None)
        if answer.status != 201:
            raise self._refuse(answer)

    def _request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> RegistryAnswer:
        named = {"Content-Type": "application/octet-stream"} if method in ("PATCH", "PUT") else {}
        named |= {key.replace("_", "-"): value for key, value in headers.items()}
        scopes = challenge.scopes_of(self.repository, "pull,push")
        return self.transport.once(RegistryRequest(method, path, self._action, self.repository, scopes, named, body))

    def _move(self, answer: RegistryAnswer) -> None:
        """Takes the URL of the next request from an answer; it may change each time."""
        if location := answer.headers.get("Location", ""):
            self._location = self.transport.absolute(location)

    def _refuse(self, answer: RegistryAnswer) -> Exception:
        """The error for an answer: a RetryableError if the registry has lost the upload."""
        error = sentence(self.transport.host, self.repository, self._action, answer)
        if answer.status == 416 or any(code in LOST_UPLOAD for code in answer.codes):
            return RetryableError(error, answer.message)
        return UserError(error)

    @property
    def _action(self) -> str:
        return f"the push of {self.digest[:19]}"

    def _parts(self) -> Iterator[bytes]:
        """The blob in parts of PART bytes, of which the last may be shorter; UserError if its source has another
        size. Reading to its end also lets the source check the digest.
        """
        left, arrived = bytearray(), 0
        for piece in self.open_blob():
            arrived += len(piece)
            left += piece
            if arrived > self.size:
                raise self._wrong(f"has more than its {self.size} bytes")
            while len(left) >= PART:
                yield bytes(left[:PART])
                del left[:PART]
        if arrived < self.size:
            raise self._wrong(f"ends after {arrived} of {self.size} bytes")
        if left:
            yield bytes(left)

    def _wrong(self, how: str) -> UserError:
        return UserError(f"the source of {self.digest} {how}, so it is damaged: build or push it again.")
