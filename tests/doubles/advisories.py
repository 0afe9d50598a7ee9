"""A service of advisories (OSV's API), which tests can't reach."""

import json
from typing import Any, ClassVar

from tests.doubles.http_server import QuietHandler


class AdvisoriesDouble(QuietHandler):
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
        document = {"vulns": [known]} if known else {}
        self.answer(self.status, self.body if self.body is not None else json.dumps(document).encode())
