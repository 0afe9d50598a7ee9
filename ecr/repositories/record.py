"""The record of pushes, dist/images.json, for programs: URIs, digests, pins, revision, sizes, bill of materials.

It has one entry per image, profile and repository; a later push of the same replaces it.
"""

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from berth.common.errors import UserError
from berth.common.files import atomic_write, explain_os_errors
from berth.ecr.registry.references import Reference

NAME = "images.json"
_THIS_MACHINE = ("127.0.0.1", "[::1]", "localhost")


@dataclass(frozen=True, slots=True)
class Pushed:
    """An image in a registry. Sizes in bytes, times as RFC 3339.

    config: the digest of the image's config; local_id: the ID on the engine that pushed it, in Docker's own store the
    same digest; compressed: the size of a host's download; bill: the file of the bill of materials next to this record,
    and its digest in the registry; derived: the name of a user's own image that is built FROM berth's `image`, such as
    mytrain:1, empty for berth's own.
    """

    image: str
    profile: str
    host: str
    repository: str
    digest: str
    config: str
    local_id: str
    tags: tuple[str, ...]
    version: str
    revision: str
    pins: Mapping[str, str]
    compressed: int
    size: int
    built: str
    pushed: str
    bill: Mapping[str, str] | None = None
    derived: str = ""

    @property
    def name(self) -> str:
        """Host and repository."""
        return Reference(self.host, self.repository).name

    @property
    def image_uri(self) -> str:
        """By digest, which can't move: for estimators."""
        return str(Reference(self.host, self.repository, digest=self.digest))

    @property
    def tagged_uri(self) -> str:
        """By its first tag; by digest if it has none."""
        return str(Reference(self.host, self.repository, self.tags[0])) if self.tags else self.image_uri

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """The entry's key: a later push with the same key replaces it."""
        return (self.image, self.profile, self.derived, *self.repository_key)

    @property
    def repository_key(self) -> tuple[str, str]:
        """Host and repository, for comparisons: all names of this machine count as one."""
        name, _, port = self.host.rpartition(":")
        return f"localhost:{port}" if name in _THIS_MACHINE else self.host, self.repository

    def as_dict(self) -> dict[str, Any]:
        """The entry for JSON, with the two URIs first."""
        return {"image_uri": self.image_uri, "tagged_uri": self.tagged_uri, **asdict(self)}


def load(file: Path) -> list[Pushed]:
    """The record's entries, oldest first; empty without a file. UserError for a file that is not a record."""
    if not file.exists():
        return []
    try:
        entries = json.loads(file.read_text())["images"]
        if not isinstance(entries, list):
            raise TypeError
        return [_entry(entry) for entry in entries]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise UserError(f"{file} can't be read as the record of what was pushed: remove it, and push again.") from None


def check(file: Path) -> None:
    """UserError if the record can't be read, or its folder not written; call it before a push."""
    with _locked(file):
        load(file)


def keep(pushed: Iterable[Pushed], file: Path) -> None:
    """Adds entries to the record; safe with parallel pushes and readers.

    If the image was pushed to the same place before, its tags stay. Tags that move to a new entry are removed from the
    others of that repository.
    """
    with _locked(file):
        new = {entry.place: entry for entry in pushed}
        moved = {(*entry.repository_key, tag) for entry in new.values() for tag in entry.tags}
        entries = []
        for entry in load(file):
            later = new.get(entry.place)
            if later is None:
                tags = tuple(tag for tag in entry.tags if (*entry.repository_key, tag) not in moved)
                entries.append(replace(entry, tags=tags))
            elif later.digest == entry.digest:
                new[entry.place] = replace(later, tags=tuple(dict.fromkeys((*later.tags, *entry.tags))))
        entries += new.values()
        with atomic_write(file) as new_file:
            new_file.write_text(json.dumps({"images": [entry.as_dict() for entry in entries]}, indent=2) + "\n")


def keep_copy(digest: str, host: str, repository: str, tags: Sequence[str], file: Path) -> None:
    """Adds the place of a copy, if its image is on record."""
    origin = next((entry for entry in reversed(load(file)) if entry.digest == digest), None)
    if origin is not None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        keep([replace(origin, host=host, repository=repository, tags=tuple(tags), pushed=now)], file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Locks the record for one process at a time; UserError if the folder can't be written."""
    with explain_os_errors(file.parent, file.name):
        file.parent.mkdir(parents=True, exist_ok=True)
        with (file.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _entry(entry: Mapping[str, Any]) -> Pushed:
    fields = {name: value for name, value in entry.items() if name not in ("image_uri", "tagged_uri")}
    return Pushed(**{**fields, "tags": tuple(entry["tags"])})
