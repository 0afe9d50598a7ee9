"""A package index (PEP 691) and a service of advisories (OSV's API) in one, neither of which tests can reach."""

import http.server
import json
from typing import Any, ClassVar


class IndexAndAdvisoriesDouble(http.server.BaseHTTPRequestHandler):
    """Plays a package index (PEP 691) and a service of advisories (OSV's API), neither of which tests can reach."""

    releases: ClassVar[dict[str, list[dict[str, Any]]]] = {}
    vulnerable: ClassVar[dict[tuple[str, str], dict[str, Any]]] = {}
    asked: ClassVar[list[str]] = []
    status = 200
    body: bytes | None = None

    def do_GET(self) -> None:
        self.asked.append(self.path)
        name = self.path.strip("/").rpartition("/")[2]
        found = self.releases.get(name)
        self.answer(404 if found is None else self.status, {"name": name, "files": found})

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = query["package"]["name"], query["version"]
        self.asked.append(f"{name} {version}")
        known = self.vulnerable.get((name, version))
        self.answer(self.status, {"vulns": [known]} if known else {})

    def answer(self, status: int, document: object) -> None:
        body = self.body if self.body is not None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
