"""Exceptions that a rank raises because its peer has gone. If another rank has a different error, that is the cause."""

import re

_ECHO = re.compile(
    r"connection (?:was )?(?:closed by peer|reset by peer|refused)|socket closed|broken pipe|DistBackendError|"
    r"ncclRemoteError|ncclSystemError|remote process exited|MPI_ERR_|timed out waiting",
    re.IGNORECASE,
)


def is_echo(text: str) -> bool:
    """Whether an exception's text only says that a peer has gone."""
    return _ECHO.search(text) is not None
