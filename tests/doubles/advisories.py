"""A service of advisories (OSV's API), which tests can't reach."""

import http.server
import json
from typing import Any, ClassVar


class AdvisoriesDouble(http.server.BaseHTTPRequestHandler):
    """Plays OSV's API with the advisories of `vulnerable`, and records the packages of all requests."""

    vulnerable: ClassVar[dict[tuple[str, str], dict[str, Any]]] = {}
    requests: ClassVar[list[str]] = []
    status = 200
    body: bytes | None = None

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = query["package"]["name"], query["version"]
        self.requests.append(f"{name} {version}")
        known = self.vulnerable.get((name, version))
        self.answer(self.status, {"vulns": [known]} if known else {})

    def answer(self, status: int, document: object) -> None:
        body = self.body if self.body is not None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
