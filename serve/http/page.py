"""The page at /: one file that loads nothing from other places and may run only its own script."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

_FILE = Path(__file__).with_name("page.html")


@cache
def _read() -> tuple[str, str]:
    """The page, and the Content-Security-Policy that allows only its own style and script, by their hashes."""
    text = _FILE.read_text("utf-8")

    def hash_of(tag: str) -> str:
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        return base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()

    allowed = f"script-src 'sha256-{hash_of('script')}'; style-src 'sha256-{hash_of('style')}'"
    rest = "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    return text, f"default-src 'none'; {allowed}; {rest}"


async def page(_request: Request) -> Response:
    """GET /."""
    text, policy = _read()
    return HTMLResponse(text, headers={"content-security-policy": policy, "cache-control": "no-store"})
