"""A registry's error answers as one sentence. Pure functions over status and body.

Codes are those of the OCI distribution specification 1.1, "Error Codes", and those that only ECR and the distribution
registry use. A proxy in front of a registry may answer with any page.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.common.http import without_password

THROTTLED = 429
RETRIED = (408, THROTTLED, 500, 502, 503, 504)
"""Statuses after which a retry may succeed."""
LOST_UPLOAD = ("BLOB_UPLOAD_INVALID", "BLOB_UPLOAD_UNKNOWN", "RANGE_INVALID")
# Messages of Go and of the registry's filesystem driver for ENOSPC and EDQUOT.
_FULL = ("no space left", "disk quota exceeded", '"err":28', '"err":122', "insufficient storage")


@dataclass(frozen=True)
class RegistryAnswer:
    """A registry's answer. headers: keys in any case; body: as far as it was read; url: after redirects."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    url: str = ""

    @property
    def errors(self) -> list[Mapping[str, Any]]:
        """The list in the specification's `{"errors": [...]}`; empty for anything else."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            return []
        listed = found.get("errors") if isinstance(found, dict) else None
        return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []

    @property
    def codes(self) -> list[str]:
        return [str(each.get("code")) for each in self.errors]

    @property
    def message(self) -> str:
        """The shortened message: of the errors, or the beginning of a text; for a web page only its status."""
        words = [f"{each.get('code')}: {each.get('message') or each.get('code')}" for each in self.errors]
        text = "; ".join(words) if words else ("" if self.is_page else self.body[:1000].decode(errors="replace"))
        return without_password(" ".join(text.split()))[:240].rstrip(". ") or (
            f"{self.status}, a web page" if self.is_page else str(self.status)
        )

    @property
    def is_page(self) -> bool:
        """Whether it is a web page, such as a login portal's or a proxy's."""
        kind = self.headers.get("Content-Type", "")
        return "html" in kind or self.body[:200].lstrip().lower().startswith((b"<!doctype", b"<html"))

    @property
    def disk_full(self) -> bool:
        """Whether the registry's disk is full, which a retry can't fix."""
        text = self.body[:10_000].decode(errors="replace").lower().replace(" ", "")
        full = any(mark.replace(" ", "") in text for mark in _FULL)
        return self.status == 507 or (self.status >= 400 and full)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return (self.status in RETRIED or "TOOMANYREQUESTS" in self.codes) and not self.disk_full

    @property
    def immutable_tag(self) -> bool:
        """Whether the tag can't be moved: ECR's code is TAG_INVALID, others only have it in the message."""
        return self.status >= 400 and ("TAG_INVALID" in self.codes or "immutab" in self.message.lower())


def sentence(host: str, repository: str, action: str, answer: RegistryAnswer) -> str:
    """What is wrong and what to do. action: of the request, such as `the push of sha256:…`."""
    where = f"{host}/{repository}" if repository else host
    if answer.disk_full:
        return f"the disk of {host} is full ({action} failed): make room there, then run this again."
    if answer.immutable_tag:
        return (
            f"{where} refuses {action} ({answer.message}): its tags can't be moved, use another --tag, such as a new "
            "version."
        )
    if answer.status == 408:
        return f"{host} waited too long for {action} ({answer.message}): look at the network, then run this again."
    if answer.retryable and answer.status < 500:
        return (
            f"{host} gets too many requests ({answer.message}): run this again later; complete layers are not sent "
            "again."
        )
    if answer.status >= 500:
        return (
            f"{host} failed at {action} ({answer.message}): run this again later, or look at the registry's log; "
            "complete layers are not sent again."
        )
    return _refused(where, host, action, answer)


def _refused(where: str, host: str, action: str, answer: RegistryAnswer) -> str:
    codes = answer.codes
    if answer.status == 401 or "UNAUTHORIZED" in codes:
        return (
            f"{host} does not accept this login for {action} ({answer.message}): log in with an account that may do "
            "that."
        )
    if answer.status == 403 or "DENIED" in codes:
        return (
            f"{where} denies {action} ({answer.message}): ask its owner for the permission, or log in as someone else."
        )
    if "NAME_UNKNOWN" in codes:
        return f"{host} has no repository {where.partition('/')[2]} ({answer.message}): create it, or fix its name."
    if "NAME_INVALID" in codes:
        return (
            f"{host} does not accept the repository name {where.partition('/')[2]} ({answer.message}): use another one."
        )
    if any(code in LOST_UPLOAD for code in codes):
        return (
            f"{where} lost the upload at {action} ({answer.message}): run this again; complete layers are not sent "
            "again."
        )
    if "DIGEST_INVALID" in codes or "SIZE_INVALID" in codes:
        return f"{where} got bytes at {action} that do not match their digest ({answer.message}): run this again."
    if "MANIFEST_BLOB_UNKNOWN" in codes or "BLOB_UNKNOWN" in codes:
        return f"{where} lacks a blob for {action} ({answer.message}): run this again, which sends what is missing."
    if "MANIFEST_INVALID" in codes:
        return f"{where} rejects the manifest at {action} ({answer.message}): check which media types it allows."
    if answer.status == 413:
        return f"something in front of {host} refuses {action} as too large (413): allow larger bodies there."
    if 300 <= answer.status < 400:
        target = without_password(answer.headers.get("Location", "nowhere"))
        return f"{host} redirects {action} to {target[:120]}: give the host of the registry itself."
    if answer.status == 404:
        return f"{where} was not found for {action} ({answer.message}): create the repository, or fix its name."
    return f"{where} refuses {action} with {answer.status} ({answer.message}): check what the registry supports."
