"""One request to a server on loopback, on a new connection."""

import http.client
from contextlib import closing

from bench.serving.load import ANSWER_WITHIN, LOOPBACK, LOST


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    content_type: str = "application/json",
    within: float = ANSWER_WITHIN,
) -> tuple[int, str]:
    """Status and text of the answer, or LOST and the reason. within: seconds to wait for it."""
    headers = {"Content-Type": content_type} if body is not None else {}
    try:
        with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=within)) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return LOST, f"{type(error).__name__}: {error}"
