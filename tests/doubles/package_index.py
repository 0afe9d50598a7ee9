"""Doubles of two package indexes.

One is like a company's: https with a certificate of its own CA, and a login. The other answers with JSON, as PyPI does
(PEP 691).
"""

import base64
import hashlib
import http.server
import io
import json
import ssl
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.doubles.certificates import make_certificate
from tests.doubles.http_server import QuietHandler, running, serving

LOGIN = "reader:pa55word"


def wheel(name: str, source: str, version: str = "1.0", headers: str = "") -> bytes:
    """A wheel of one module that pip can install; headers: further lines of its METADATA."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{headers}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return packed.getvalue()


@dataclass(frozen=True)
class PackageIndex:
    """A running index, as a user of pip sees it."""

    url: str
    """The value for PIP_INDEX_URL, with the login."""
    shown: str
    """The URL as a log may show it, without the login."""
    ca: Path
    """The file with the certificate of the index's CA."""
    requests: list[str]
    """The paths of all requests with the right login, in order."""


class _Handler(QuietHandler, http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments: object, requests: list[str], **options: object) -> None:
        self.requests = requests
        super().__init__(*arguments, **options)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Basic {base64.b64encode(LOGIN.encode()).decode()}":
            self.answer(401, headers={"WWW-Authenticate": 'Basic realm="index"'})
        else:
            self.requests.append(self.path)
            super().do_GET()

    def end_headers(self) -> None:
        if self.path.endswith(".whl"):
            self.send_header("Cache-Control", "max-age=365000000, immutable")  # as PyPI sends with its files
        super().end_headers()


@contextmanager
def package_index(folder: Path, modules: Mapping[str, str], host: str = "127.0.0.1") -> Iterator[PackageIndex]:
    """Serve an index on `host`, an address of this machine. It has a wheel for each module (name → source)."""
    pages = folder / "index"
    for name, source in modules.items():
        page = pages / "simple" / name.replace("_", "-")
        page.mkdir(parents=True)
        (page / f"{name}-1.0-py3-none-any.whl").write_bytes(wheel(name, source))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = make_certificate(folder, [host])
    context.load_cert_chain(made.certificate, made.key)
    requests: list[str] = []
    handler = partial(_Handler, directory=str(pages), requests=requests)
    server = http.server.ThreadingHTTPServer((host, 0), handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    place = f"{host}:{server.server_port}/simple"
    with running(server):
        yield PackageIndex(f"https://{LOGIN}@{place}", f"https://***@{place}", made.ca, requests)


@dataclass
class JsonIndex:
    """What the double of PyPI serves: files by name, and further facts of each (upload-time, yanked, requires-python).

    While `silent` is true, it closes connections without an answer. If `hashed` is true, it lists the hash of each
    wheel; uv then makes one request more per wheel.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    silent: bool = False
    hashed: bool = False

    def add(self, name: str, version: str, headers: str = "", tag: str = "py3-none-any", **facts: Any) -> str:
        """Add a wheel; returns its file name. `headers`: lines of its METADATA. `facts`: names with _ in place of -."""
        file = f"{name}-{version}-{tag}.whl"
        self.files[file] = wheel(name, "WORD = 1\n", version, headers)
        self.facts[file] = {key.replace("_", "-"): value for key, value in facts.items()}
        if self.hashed:
            self.facts[file]["hashes"] = {"sha256": hashlib.sha256(self.files[file]).hexdigest()}
        return file


class _JsonHandler(QuietHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: object, index: JsonIndex) -> None:
        self.index = index
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        index, name = self.index, self.path.strip("/").rpartition("/")[2]
        if index.silent:
            self.close_connection = True
        elif self.path.startswith("/simple/"):
            files = [
                {"filename": each, "url": f"../../files/{each}", "hashes": {}, **facts}
                for each, facts in index.facts.items()
                if each.partition("-")[0].replace("_", "-") == name
            ]
            # Tests may share a cache: pages change, files stay.
            page = {"Content-Type": "application/vnd.pypi.simple.v1+json", "Cache-Control": "no-store"}
            self.answer(200 if files else 404, json.dumps({"name": name, "files": files}).encode(), page)
        elif name not in index.files:
            self.answer(404)
        else:
            self.answer(200, index.files[name], {"Cache-Control": "max-age=9999, immutable"})

    do_HEAD = do_GET


@contextmanager
def json_index() -> Iterator[JsonIndex]:
    """Serve the files that a test adds, as PyPI does but without https; there is no login."""
    index = JsonIndex()
    with serving(partial(_JsonHandler, index=index)) as address:
        index.url = f"{address}/simple"
        yield index
