"""What commands keep for the next one in this user's cache: JSON documents by key."""

import hashlib
import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.common.files import atomic_write, explain_os_errors


def answer_key(*question: object) -> str:
    """The key of an answer: a hash of all that the question depends on, passwords among it."""
    return hashlib.sha256(repr(question).encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Kept:
    """Documents in `folder`, of which the `most` that were used last stay; seconds: how long one holds."""

    folder: Path
    most: int
    seconds: float = math.inf

    def load(self, key: str) -> Any:
        """What was stored under a key; None if there is nothing, nothing that can be read, or it is too old."""
        path = self._path(key)
        try:
            if time.time() - path.stat().st_mtime > self.seconds:
                return None
            document = json.loads(path.read_text(encoding="utf-8"))
            if self.seconds == math.inf:
                path.touch()  # the one used last goes last
        except (OSError, ValueError):
            return None
        return document

    def store(self, key: str, document: object) -> None:
        """Keeps a document; UserError if the disk refuses it."""
        path = self._path(key)
        with explain_os_errors(self.folder, path.name):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as new:
                new.write_text(json.dumps(document), encoding="utf-8")
            with suppress(FileNotFoundError):  # another thread or process does the same
                for old in sorted(self.folder.glob("*.json"), key=lambda each: each.stat().st_mtime)[: -self.most]:
                    old.unlink()

    def _path(self, key: str) -> Path:
        return self.folder / f"{key.replace(':', '-')}.json"
