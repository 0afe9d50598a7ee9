"""What a registry's answer means when it is not the wanted one, in one sentence. Pure functions over status and body.

Codes are those of the OCI distribution specification 1.1, "Error Codes", and of ECR and the distribution registry where
they differ; a proxy in front of a registry answers with any page of its own.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berth.common.http import without_password

THROTTLED = 429
RETRIED = (408, THROTTLED, 500, 502, 503, 504)
"""Statuses that may be gone at the next try."""
LOST_UPLOAD = ("BLOB_UPLOAD_INVALID", "BLOB_UPLOAD_UNKNOWN", "RANGE_INVALID")
# As Go and the filesystem driver say it: ENOSPC and EDQUOT.
_FULL = ("no space left", "disk quota exceeded", '"err":28', '"err":122', "insufficient storage")


@dataclass(frozen=True)
class RegistryAnswer:
    """An answer of a registry's; `headers` by any case, `body` as far as it was read, `url` after redirects."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    url: str = ""

    @property
    def errors(self) -> list[Mapping[str, Any]]:
        """`{"errors": [...]}` of the specification; empty for anything else."""
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
        """Its own words, shortened: the errors' messages, or the beginning of a text; of a web page only that it is."""
        words = [f"{each.get('code')}: {each.get('message') or each.get('code')}" for each in self.errors]
        text = "; ".join(words) if words else ("" if self.is_page else self.body[:1000].decode(errors="replace"))
        return without_password(" ".join(text.split()))[:240].rstrip(". ") or (
            f"{self.status}, a web page" if self.is_page else str(self.status)
        )

    @property
    def is_page(self) -> bool:
        """Whether it is a web page, as a login portal or a proxy sends."""
        kind = self.headers.get("Content-Type", "")
        return "html" in kind or self.body[:200].lstrip().lower().startswith((b"<!doctype", b"<html"))

    @property
    def disk_full(self) -> bool:
        """Whether the registry has no room; nothing that another try fixes."""
        text = self.body[:10_000].decode(errors="replace").lower().replace(" ", "")
        full = any(mark.replace(" ", "") in text for mark in _FULL)
        return self.status == 507 or (self.status >= 400 and full)

    @property
    def retryable(self) -> bool:
        """Whether the same request may go well a little later."""
        return (self.status in RETRIED or "TOOMANYREQUESTS" in self.codes) and not self.disk_full

    @property
    def immutable_tag(self) -> bool:
        """Whether a tag may not be moved: ECR says TAG_INVALID, others only so in words."""
        return self.status >= 400 and ("TAG_INVALID" in self.codes or "immutab" in self.message.lower())


def sentence(host: str, repository: str, action: str, answer: RegistryAnswer) -> str:
    """What is wrong and what to do. action: what was asked for, as `the push of sha256:…`."""
    where = f"{host}/{repository}" if repository else host
    if answer.disk_full:
        return f"the disk of {host} is full ({action} failed): make room there, then run this again."
    if answer.immutable_tag:
        return (
            f"{where} refuses {action} ({answer.message}): its tags can't be moved, take another --tag, for example of "
            "a new version."
        )
    if answer.status == 408:
        return f"{host} waited too long for {action} ({answer.message}): look at the network, then run this again."
    if answer.retryable and answer.status < 500:
        return f"{host} is asked too often ({answer.message}): run this again later, what arrived is not sent again."
    if answer.status >= 500:
        return (
            f"{host} failed at {action} ({answer.message}): run this again later, what arrived is not sent again, or "
            "look at the registry's log."
        )
    return _refused(where, host, action, answer)


def _refused(where: str, host: str, action: str, answer: RegistryAnswer) -> str:
    codes = answer.codes
    if answer.status == 401 or "UNAUTHORIZED" in codes:
        return (
            f"{host} does not take this login for {action} ({answer.message}): log in with an account that may do that."
        )
    if answer.status == 403 or "DENIED" in codes:
        return (
            f"{where} denies {action} ({answer.message}): ask its owner for the permission, or log in as someone else."
        )
    if "NAME_UNKNOWN" in codes:
        return f"{host} has no repository {where.partition('/')[2]} ({answer.message}): create it, or fix its name."
    if "NAME_INVALID" in codes:
        return (
            f"{host} does not take {where.partition('/')[2]} for a repository ({answer.message}): give it another name."
        )
    if any(code in LOST_UPLOAD for code in codes):
        return (
            f"{where} lost the upload at {action} ({answer.message}): run this again, what arrived is not sent again."
        )
    if "DIGEST_INVALID" in codes or "SIZE_INVALID" in codes:
        return f"{where} got other bytes at {action} than their digest says ({answer.message}): run this again."
    if "MANIFEST_BLOB_UNKNOWN" in codes or "BLOB_UNKNOWN" in codes:
        return f"{where} lacks a blob for {action} ({answer.message}): run this again, which sends what is missing."
    if "MANIFEST_INVALID" in codes:
        return f"{where} does not take the manifest at {action} ({answer.message}): see which media types it allows."
    if answer.status == 413:
        return f"something in front of {host} refuses {action} as too large (413): allow larger bodies there."
    if 300 <= answer.status < 400:
        target = without_password(answer.headers.get("Location", "nowhere"))
        return f"{host} sends {action} on to {target[:120]}: give the registry that answers itself."
    if answer.status == 404:
        return f"{where} is not there for {action} ({answer.message}): create the repository, or fix its name."
    return f"{where} refuses {action} with {answer.status} ({answer.message}): see what the registry supports."
