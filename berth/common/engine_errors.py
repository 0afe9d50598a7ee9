"""Errors of the Docker SDK as one sentence that says what to do. Pure.

The SDK also raises errors of requests and urllib3, some in the middle of a stream. build.py prints `explain` of errors
that a command did not catch, so commands need not.
"""

import re
from urllib.parse import urlsplit

from docker.credentials.errors import StoreError
from docker.errors import APIError, DockerException
from requests.exceptions import HTTPError as RefusedRequest
from requests.exceptions import RequestException, Timeout
from urllib3.exceptions import HTTPError, TimeoutError

from berth.common.http import innermost, without_password

RAISED = (DockerException, StoreError, RequestException, HTTPError)
"""All that the SDK raises because of the engine, its own settings or a credential helper."""

_REMEDIES = (
    (
        r"no space left on device|disk quota exceeded",
        "free some of the engine's disk with `python build.py clean` or `docker builder prune`, then run the command "
        "again",
    ),
    (
        r"bind source path does not exist|mounts denied|is not shared from the host|statfs .*no such file",
        "the engine does not see this folder of your machine; move what is in it to one that it shares, such as your "
        "home, or set TMPDIR to one if it is a temporary folder, then run the command again (`python build.py doctor` "
        "tests it)",
    ),
    (
        r"exec format error",
        "the engine's machine can't run linux/amd64; `python build.py doctor` says how to add emulation",
    ),
)
"""A regular expression for the engine's message, and the remedy."""
_ENGINES_URL = re.compile(r"http\+docker://|https?://[^/]+/(v\d+\.\d+/|_ping|version)")


def explain(error: BaseException) -> str:
    """What went wrong and what to do; empty for an error that does not come from the SDK."""
    if isinstance(error, APIError):
        return _explain_answer(error)
    if isinstance(error, KeyError) and isinstance(error.__context__, RefusedRequest):
        # The SDK requires the field `message`, which some of podman's errors lack.
        answer = error.__context__.response
        return _explain_answer(APIError("", answer, str(answer.json().get("error") or answer.text)))
    if isinstance(error, StoreError) or "Credentials store" in str(error):
        return _explain_helper(str(error))
    if isinstance(error, RequestException | HTTPError):
        return _explain_lost_connection(error)
    if isinstance(error, DockerException):
        return f"Docker's SDK can't do this: {words(error)}. `python build.py doctor` looks at the engine."
    return ""


def words(error: BaseException) -> str:
    """The engine's or the SDK's message, or that of a network error's innermost cause: one line, without passwords."""
    if "Credentials store" in str(error):
        return _explain_helper(str(error)).rstrip(".")
    if isinstance(error, APIError) and error.explanation:
        text = str(error.explanation)
    elif isinstance(error, DockerException) or not isinstance(error, RequestException | HTTPError | OSError):
        text = str(error)
    else:
        cause = innermost(error)
        text = str(getattr(cause, "strerror", None) or cause) or type(cause).__name__
    return without_password(" ".join(text.split()))[:300].rstrip(".")


def _explain_answer(error: APIError) -> str:
    message = words(error)
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, message, re.IGNORECASE):
            return f"The Docker engine reports: {message}: {remedy}."
    if error.is_server_error():
        return (
            f"The Docker engine failed: {message}. Its own log says more (`journalctl --unit docker`); restart it if "
            "need be, then run the command again."
        )
    return f"The Docker engine refused a request: {message}. `python build.py doctor` looks at the engine."


def _explain_lost_connection(error: Exception) -> str:
    url = str(getattr(getattr(error, "request", None), "url", None) or "")
    if url and not _ENGINES_URL.match(url):
        return (
            f"{urlsplit(url).hostname} does not answer: {words(error)}. Look at this machine's network and its proxies."
        )
    if isinstance(error, Timeout | TimeoutError):
        return (
            "The Docker engine does not answer in time: it may be busy. Run the command again, or restart the engine "
            "if it stays so."
        )
    return (
        f"The connection to the Docker engine broke off: {words(error)}. See that it still runs, then run the command "
        "again."
    )


def _explain_helper(message: str) -> str:
    """Without the credential helper's output, which may contain a password."""
    found = re.search(r"docker-credential-[\w.-]+", message)
    helper = found[0] if found else "Docker's credential helper"
    fault = "is not installed" if "not installed" in message else "fails"
    return (
        f"{helper}, which Docker's config.json names, {fault}: fix it (`{helper} list` tries it), or remove credsStore "
        "and credHelpers from that file and run `docker login` again."
    )
