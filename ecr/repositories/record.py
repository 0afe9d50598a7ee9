"""What was pushed, kept for programs in dist/images.json: URIs, digests, pins, revision, sizes, bill of materials.

One entry for each image, profile and repository; a later push of the same takes its place.
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

    config: the digest of the image's config; local_id: what the engine that pushed it calls it, the same digest in most
    engines; compressed: what a host downloads; bill: the file of the bill of materials next to this record, and the
    digest of the artifact in the registry; derived: what the owner of an image that is built FROM the kit's `image`
    calls it, such as mytrain:1, empty for the kit's own.
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
        """By digest: what an estimator takes, and nothing can move."""
        return str(Reference(self.host, self.repository, digest=self.digest))

    @property
    def tagged_uri(self) -> str:
        """By its first tag; by digest where it has none."""
        return str(Reference(self.host, self.repository, self.tags[0])) if self.tags else self.image_uri

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """What a later push takes the place of."""
        return (self.image, self.profile, self.derived, *self.repository_key)

    @property
    def repository_key(self) -> tuple[str, str]:
        """Host and repository, to be compared: a port of this machine is one place by whichever name."""
        name, _, port = self.host.rpartition(":")
        return f"localhost:{port}" if name in _THIS_MACHINE else self.host, self.repository

    def as_dict(self) -> dict[str, Any]:
        """For JSON, the two URIs first."""
        return {"image_uri": self.image_uri, "tagged_uri": self.tagged_uri, **asdict(self)}


def load(file: Path) -> list[Pushed]:
    """What the record holds, oldest first; empty without one. UserError for a file that is no record."""
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
    """UserError where the record can't be read or its folder not be written: to be said before anything is pushed."""
    with _locked(file):
        load(file)


def keep(pushed: Iterable[Pushed], file: Path) -> None:
    """Adds to the record; two pushes at the same time both get in, and a reader never sees half a file.

    Tags of the same image at the same place stay: a push without them takes none of them away. A tag that another image
    had there is that one's no more.
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
    """Adds the place of a copy of an image that is on record; one that is not was pushed elsewhere."""
    origin = next((entry for entry in reversed(load(file)) if entry.digest == digest), None)
    if origin is not None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        keep([replace(origin, host=host, repository=repository, tags=tuple(tags), pushed=now)], file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process at a time; UserError where the folder can't be written."""
    with explain_os_errors(file.parent, file.name):
        file.parent.mkdir(parents=True, exist_ok=True)
        with (file.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _entry(entry: Mapping[str, Any]) -> Pushed:
    fields = {name: value for name, value in entry.items() if name not in ("image_uri", "tagged_uri")}
    return Pushed(**{**fields, "tags": tuple(entry["tags"])})
