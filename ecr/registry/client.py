"""A client for the OCI distribution specification 1.1: manifests, blobs, tags and referrers.

`Registry` works with ECR and any other registry, without an engine. Blobs may be gigabytes, so they are read and sent
in pieces. transport.py connects and logs in, upload.py sends blobs, errors.py has the sentences.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import quote, urlencode

from berth.common.errors import UserError
from berth.ecr.registry import challenge, transport
from berth.ecr.registry.challenge import Scopes
from berth.ecr.registry.errors import RegistryAnswer, sentence
from berth.ecr.registry.manifest import MEDIA_TYPES, Descriptor, Manifest, descriptor, digest_of, is_digest, json_object
from berth.ecr.registry.transport import RegistryRequest, RetryableError, Transport
from berth.ecr.registry.upload import OpenBlob, Upload


class Registry:
    """The registry that `transport` connects to; threads may share it.

    Methods retry if that may help, and raise UserError for errors that the user can fix.
    """

    def __init__(self, transport: Transport) -> None:
        self.host = transport.host
        self._transport = transport

    def ping(self) -> None:
        """UserError if no registry answers, or if its certificate is not trusted. Does not log in."""
        self._transport.base()

    def manifest(self, repository: str, reference: str) -> Manifest | None:
        """The manifest of a tag or a digest, checked against its digest; None if there is none."""
        action = f"the manifest {reference[:19] if is_digest(reference) else reference}"
        headers = {"Accept": ", ".join(MEDIA_TYPES)}
        scopes = challenge.scopes_of(repository)
        request = RegistryRequest("GET", _manifest(repository, reference), action, repository, scopes, headers)
        answer = self._transport.send(request)
        if answer.status == 404:
            return None
        if answer.status != 200 or answer.is_page:
            raise self._refused(repository, action, answer)
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        if kind not in MEDIA_TYPES:  # some registries send application/json; then the manifest has the media type
            kind = str(json_object(answer.body, "the manifest").get("mediaType") or kind)
        found = Manifest(kind, answer.body)
        wanted = reference if is_digest(reference) else answer.headers.get("Docker-Content-Digest", found.digest)
        if found.digest != wanted:
            raise self._mismatch(wanted, found.digest)
        return found

    def put_manifest(self, repository: str, reference: str, manifest: Manifest) -> str:
        """Puts a manifest with a tag, or with its own digest; returns the digest.

        UserError with the registry's reason if the tag can't be moved, unless it is on this manifest already.
        """
        action = f"the tag {reference}" if not is_digest(reference) else f"the manifest {reference[:19]}"
        request = RegistryRequest(
            "PUT",
            _manifest(repository, reference),
            action,
            repository,
            challenge.scopes_of(repository, "pull,push"),
            {"Content-Type": manifest.media_type},
            manifest.raw,
        )
        answer = self._transport.send(request)
        if answer.immutable_tag:
            there = self.manifest(repository, reference)
            if there is not None and there.digest == manifest.digest:
                return manifest.digest
        if answer.status not in (200, 201, 202):
            raise self._refused(repository, action, answer)
        stored = answer.headers.get("Docker-Content-Digest", manifest.digest)
        if stored != manifest.digest:
            raise self._mismatch(manifest.digest, stored)
        return manifest.digest

    def delete_tag(self, repository: str, tag: str) -> bool:
        """Removes a tag, but not its manifest; False if the registry can't, such as the distribution registry."""
        scopes = challenge.scopes_of(repository, "delete,pull,push")
        request = RegistryRequest("DELETE", _manifest(repository, tag), f"removing {tag}", repository, scopes)
        try:
            answer = self._transport.send(request)
        except UserError:
            return False
        return answer.status in (200, 202, 204)

    def tags(self, repository: str) -> list[str]:
        """All tags; empty if the repository does not exist."""
        found: list[str] = []
        for page in self._pages(f"/v2/{_quoted(repository)}/tags/list", "the list of tags", repository, (404,)):
            if page.status != 200:
                break
            listed = json_object(page.body, "the list of tags").get("tags")
            found += [str(tag) for tag in listed] if isinstance(listed, list) else []
        return found

    def referrers(self, repository: str, digest: str) -> list[Descriptor] | None:
        """The artifacts that refer to this manifest, by the referrers API; None if the registry has no such API."""
        found: list[Descriptor] = []
        path = f"/v2/{_quoted(repository)}/referrers/{_quoted(digest)}"
        for page in self._pages(path, "the referrers", repository, (404, 405)):
            if page.status != 200 or page.is_page:
                return None
            found += [descriptor(each) for each in json_object(page.body, "the referrers").get("manifests") or []]
        return found

    def blob_size(self, repository: str, digest: str) -> int | None:
        """A blob's size in bytes; None if the repository does not have it."""
        action = f"the check for {digest[:19]}"
        scopes = challenge.scopes_of(repository)
        answer = self._transport.send(RegistryRequest("HEAD", _blob(repository, digest), action, repository, scopes))
        if answer.status == 404:
            return None
        length = answer.headers.get("Content-Length", "")
        if answer.status != 200 or not length.isdecimal():
            raise self._refused(repository, action, answer)
        return int(length)

    def read_blob(self, repository: str, digest: str) -> Iterator[bytes]:
        """A blob's pieces; a dropped connection is resumed. UserError after the last piece if the digest does not
        match.
        """
        action = f"the read of {digest[:19]}"
        hashed = hashlib.sha256()
        at = failures = 0
        while True:
            try:
                for piece in self._read_on(repository, digest, action, at):
                    hashed.update(piece)
                    at += len(piece)
                    failures = 0
                    yield piece
                break
            except RetryableError as dropped:
                self._transport.wait(dropped, failures)
                failures += 1
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise self._mismatch(digest, f"sha256:{hashed.hexdigest()}")

    def _read_on(self, repository: str, digest: str, action: str, at: int) -> Iterator[bytes]:
        """A blob's pieces from an offset, with a Range header; if the registry ignores it, skips earlier bytes."""
        headers = {"Range": f"bytes={at}-"} if at else {}
        scopes = challenge.scopes_of(repository)
        request = RegistryRequest("GET", _blob(repository, digest), action, repository, scopes, headers)
        with self._transport.stream(request) as (answer, pieces):
            if answer.status == 416:  # the offset is the end of the blob
                return
            begins = re.match(r"bytes (\d+)-", answer.headers.get("Content-Range", ""))
            if answer.status not in (200, 206) or (answer.status == 206 and (not begins or int(begins[1]) != at)):
                raise self._refused(repository, action, answer)
            skip = at if answer.status == 200 else 0
            for piece in pieces:
                if kept := piece[skip:]:
                    yield kept
                skip = max(0, skip - len(piece))

    def blob(self, repository: str, digest: str) -> bytes:
        """The checked content of a small blob: a config or a document."""
        found = bytearray()
        for piece in self.read_blob(repository, digest):
            found += piece
            if len(found) > transport.LARGEST_ANSWER:
                raise UserError(
                    f"{digest} at {self.host}/{repository} has more than {transport.LARGEST_ANSWER >> 20} MiB, too "
                    "large for a config or document: check what is stored there."
                )
        return bytes(found)

    def mount_blob(self, repository: str, digest: str, from_repository: str) -> bool:
        """Lets the registry mount a blob from another of its repositories; False if it does not.

        The upload that follows reports the reason, if it is an error.
        """
        query = urlencode({"mount": digest, "from": from_repository})
        scopes: Scopes = (*challenge.scopes_of(repository, "pull,push"), *challenge.scopes_of(from_repository))
        action = f"the mount of {digest[:19]}"
        path = f"/v2/{_quoted(repository)}/blobs/uploads/?{query}"
        answer = self._transport.send(RegistryRequest("POST", path, action, repository, scopes))
        if answer.status == 202 and (location := answer.headers.get("Location")):
            # The registry has begun an upload instead: cancel it.
            abort = RegistryRequest("DELETE", location, action, scopes=challenge.scopes_of(repository, "pull,push"))
            with suppress(UserError, RetryableError):
                self._transport.once(abort)
        return answer.status == 201

    def upload_blob(
        self,
        repository: str,
        digest: str,
        size: int,
        open_blob: OpenBlob,
        sent: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Sends a missing blob.

        open_blob: returns the blob's bytes, and may be called several times; sent: called with the bytes that have
        arrived, a number that decreases when the upload starts again.
        """
        Upload(self._transport, _quoted(repository), digest, size, open_blob, sent).run()

    def put_blob(self, repository: str, content: bytes) -> str:
        """Sends a small blob, unless the repository has it; returns its digest."""
        digest = digest_of(content)
        if self.blob_size(repository, digest) is None:
            self.upload_blob(repository, digest, len(content), lambda: iter((content,)))
        return digest

    def _pages(self, path: str, action: str, repository: str, understood: tuple[int, ...]) -> Iterator[RegistryAnswer]:
        """The pages of a list, by their Link headers; understood: other statuses than 200 that the caller handles."""
        seen: set[str] = set()
        while path and path not in seen:
            seen.add(path)
            request = RegistryRequest("GET", path, action, repository, challenge.scopes_of(repository))
            answer = self._transport.send(request)
            if answer.status not in (200, *understood):
                raise self._refused(repository, action, answer)
            yield answer
            link = re.search(r'<([^>]*)>\s*;[^,]*rel="?next"?', answer.headers.get("Link", ""))
            path = link[1] if link else ""

    def _refused(self, repository: str, action: str, answer: RegistryAnswer) -> UserError:
        return UserError(sentence(self.host, repository, action, answer))

    def _mismatch(self, wanted: str, got: str) -> UserError:
        return UserError(
            f"{self.host} returned {got} for {wanted}: the content is damaged there, or was changed on the way; push "
            "the image again."
        )


def _manifest(repository: str, reference: str) -> str:
    return f"/v2/{_quoted(repository)}/manifests/{_quoted(reference)}"


def _blob(repository: str, digest: str) -> str:
    return f"/v2/{_quoted(repository)}/blobs/{_quoted(digest)}"


def _quoted(name: str) -> str:
    """A name for a URL's path; a digest's colon is not escaped."""
    return quote(name, safe="/:")
