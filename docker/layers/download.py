"""Downloads a file over HTTP in up to four tries; each continues where the last one stopped. Prints a line per 100 MB.

Usage: python download.py URL FILE
"""

import sys
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

TRIES, TIMEOUT, PIECE, SHOWN = 4, 60, 1 << 20, 100_000_000


def fetch(url: str, path: Path) -> None:
    """Downloads the file, or its rest if a part of it exists."""
    offset = path.stat().st_size if path.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, path.open("ab") as file:
        if offset and answer.status != 206:
            file.truncate(0)
            offset = 0
        length = answer.headers.get("Content-Length")
        while piece := answer.read(PIECE):
            file.write(piece)
            if (offset + len(piece)) // SHOWN > offset // SHOWN:
                print(f"{url}: {(offset + len(piece)) // 1_000_000} MB", flush=True)
            offset += len(piece)
    if length is not None and path.stat().st_size < int(length):
        raise HTTPException(f"the connection ended after {path.stat().st_size} bytes")


def main(url: str, path: Path) -> None:
    """SystemExit with the reason if no try succeeds, at once if the server says that it does not have the file."""
    for number in range(1, TRIES + 1):
        try:
            return fetch(url, path)
        except (OSError, HTTPException) as error:
            final = (
                isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500 and error.code not in (408, 429)
            )
            if final or number == TRIES:
                sys.exit(f"{url}: {error}")
            time.sleep(2**number)


main(sys.argv[1], Path(sys.argv[2]))
