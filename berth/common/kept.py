"""A cache of JSON documents by key, which commands keep for later ones."""

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.common.files import atomic_write, explain_os_errors


def answer_key(*question: object) -> str:
    """The key of an answer: a hash of everything that it depends on, including passwords."""
    return hashlib.sha256(repr(question).encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """Documents in `folder`. most: how many are kept, the most recently used ones."""

    folder: Path
    most: int

    def load(self, key: str) -> Any:
        """The document of a key; None if it is missing or unreadable."""
        path = self._path(key)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            path.touch()  # the least recently used is removed first
        except (OSError, ValueError):
            return None
        return document

    def store(self, key: str, document: object) -> None:
        """Stores a document; UserError if it can't be written."""
        path = self._path(key)
        with explain_os_errors(self.folder, path.name):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as new:
                new.write_text(json.dumps(document), encoding="utf-8")
            with suppress(FileNotFoundError):  # another thread or process removes the same file
                for old in sorted(self.folder.glob("*.json"), key=lambda each: each.stat().st_mtime)[: -self.most]:
                    old.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key.replace(':', '-')}.json"
