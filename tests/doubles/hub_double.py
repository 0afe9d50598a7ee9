"""A double of the hub, which serves folders as models.

It has the parts of the hub's API that a download of a whole model needs. As on the hub, the header X-Error-Code names
the error.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.doubles.http_server import QuietHandler, serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubDouble:
    """The double's models and the requests so far. `token`: without it the double denies that a model exists."""

    models: Mapping[str, Path]
    token: str = ""
    gated: frozenset[str] = frozenset()
    url: str = ""
    requests: list[str] = field(default_factory=list)


@contextmanager
def hub_of(hub: HubDouble) -> Iterator[HubDouble]:
    """Serve the double on a port of this machine until the block ends; this sets its `url`."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    with serving(Handler) as hub.url:
        yield hub


class _Handler(QuietHandler):
    hub: HubDouble

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            name, rest = "/".join(parts[2:4]), parts[4:]
        else:
            name, rest = "/".join(parts[:2]), parts[2:]
        folder = self.hub.models.get(name)
        if folder is None or (self.hub.token and self.headers["Authorization"] != f"Bearer {self.hub.token}"):
            return self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
        if name in self.hub.gated:
            return self.answer(403, b"{}", {"X-Error-Code": "GatedRepo"})
        kind, revision, *inner = [*rest, "", ""][: max(2, len(rest))]
        if revision not in ("main", COMMIT):
            return self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        files = {str(each.relative_to(folder)): each for each in sorted(folder.rglob("*")) if each.is_file()}
        if kind == "revision":
            info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": each} for each in files]}
            return self.answer(200, json.dumps(info).encode())
        if kind == "tree":
            tree = [
                {"type": "file", "path": each, "size": path.stat().st_size, "oid": _hash(path.read_bytes())}
                for each, path in files.items()
            ]
            return self.answer(200, json.dumps(tree).encode())
        file = files.get("/".join(inner))
        if kind != "resolve" or file is None:
            return self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        content = file.read_bytes()
        return self.answer(200, content, {"ETag": f'"{_hash(content)}"', "X-Repo-Commit": COMMIT})

    do_HEAD = do_GET


def _hash(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
