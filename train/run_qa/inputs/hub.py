"""Checks once whether the hub can be reached, before anything is loaded from it.

The hub's client retries for 25 s if the connection is refused, and for more than 400 s if the hub never answers
(huggingface_hub 2.4, measured). So if the hub can't be reached, the client is set to offline mode: it uses its cache,
and fails at once if that does not have the file.
"""

import os
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants

SECONDS = 10.0
"""Time-out for name lookup, connection and answer together."""


def needs(names: Collection[str | Path | None]) -> bool:
    """Whether one of these models, tokenizers and data sets is a name on the hub, not a path."""
    return any(isinstance(name, str) and not Path(name).exists() for name in names)


def go_offline_if_out_of_reach(say: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Set the hub's client to offline mode and log a warning, unless the hub answers."""
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return
    endpoint = huggingface_hub.constants.ENDPOINT
    reason = why_unreachable(endpoint, seconds)
    if not reason:
        return
    os.environ["HF_HUB_OFFLINE"] = "1"  # for processes that this one starts
    huggingface_hub.constants.HF_HUB_OFFLINE = True
    if config := sys.modules.get("datasets.config"):
        config.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    say(f"warning: the hub, {endpoint}, can't be reached ({reason}): only files in its cache are used")


def why_unreachable(endpoint: str, seconds: float) -> str:
    """Why the hub does not answer within `seconds`; empty if it answers."""
    results: list[str] = []

    def probe() -> None:
        try:
            huggingface_hub.get_session().head(endpoint, timeout=seconds)
        except Exception as error:  # many types: httpx's, or those of a wrong proxy address
            results.append(str(error) or type(error).__name__)
        else:
            results.append("")

    # In a thread, because the lookup of a host name has no time-out.
    attempt = threading.Thread(target=probe, daemon=True)
    attempt.start()
    attempt.join(seconds)
    return results[0] if results else f"no answer within {seconds:.0f} s"
