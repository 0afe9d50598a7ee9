"""Whether the hub can be reached, asked once before anything is loaded from it.

Its client asks what refuses for 25 s, and what never answers for more than 400 s (huggingface_hub 2.4, measured). Where
no connection comes about, it is told to work offline: it takes what its cache holds, and else fails at once.
"""

import os
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants

SECONDS = 10.0
"""For the lookup of the name, the connection and an answer together."""


def needs(names: Collection[str | Path | None]) -> bool:
    """Whether one of these models, tokenizers and data sets is a name of the hub, and no path."""
    return any(isinstance(name, str) and not Path(name).exists() for name in names)


def go_offline_if_out_of_reach(say: Callable[[str], None], seconds: float = SECONDS) -> None:
    """Have the hub's client work offline, and say so, unless the hub answers."""
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
    say(f"warning: the hub, {endpoint}, can't be reached ({reason}): only what its cache holds is used")


def why_unreachable(endpoint: str, seconds: float) -> str:
    """In words, why the hub's client gets no answer within so many seconds; empty if it gets any."""
    found: list[str] = []

    def ask() -> None:
        try:
            huggingface_hub.get_session().head(endpoint, timeout=seconds)
        except Exception as error:  # of httpx, or of a proxy whose address is wrong
            found.append(str(error) or type(error).__name__)
        else:
            found.append("")

    # In a thread, because the lookup of a host name has no time-out.
    attempt = threading.Thread(target=ask, daemon=True)
    attempt.start()
    attempt.join(seconds)
    return found[0] if found else f"no answer within {seconds:.0f} s"
