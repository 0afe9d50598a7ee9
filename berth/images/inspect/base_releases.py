"""Asks Docker Hub, without a login, whether the base image has a newer release.

Other registries are not asked, because they hold copies that somebody selected.
"""

import re
from collections.abc import Iterable

import requests

from berth.common.http import in_few_words, innermost
from berth.images.network.build_network import Network

HUB = "https://hub.docker.com"
_TIMEOUT_S = 20
_DAY = re.compile(r"(?<!\d)20\d{6}(?!\d)")


def newer_tag(tag: str, others: Iterable[str]) -> str:
    """The newest tag that differs from `tag` only by a later day (bookworm-20260918-slim); else empty."""
    days = _DAY.findall(tag)
    if len(days) != 1:
        return ""
    alike = re.compile(_DAY.sub("(20[0-9]{6})", re.escape(tag)))
    later = [other for other in others if (found := alike.fullmatch(other)) and found[1] > days[0]]
    return max(later, default="")


def ask_hub(base_image: str, network: Network, hub: str = HUB) -> tuple[str, str]:
    """The newer tag of a base such as debian:bookworm-20260918-slim, or empty; and, if that is unknown, a sentence that
    says why.
    """
    base = base_image.partition("@")[0]
    name, _, tag = base.partition(":")
    begin = f"Whether the base {base} has a newer release is not known: "
    if not _DAY.search(tag) or {".", ":"} & {*name.partition("/")[0]}:
        return "", f"{begin}it has no day in its tag, or is not on Docker Hub."
    url = f"{hub}/v2/repositories/{name if '/' in name else f'library/{name}'}/tags"
    search = {"name": _DAY.split(tag)[0], "page_size": "100"}
    try:
        answer = requests.get(url, search, timeout=_TIMEOUT_S, verify=network.verify)
        if answer.status_code != 200:
            return "", f"{begin}{hub} answers {answer.status_code} {answer.reason}."
        return newer_tag(tag, [str(each["name"]) for each in answer.json()["results"]]), ""
    except (KeyError, TypeError, requests.exceptions.JSONDecodeError):
        return "", f"{begin}{hub} does not answer with a list of tags."
    except requests.RequestException as error:
        return "", f"{begin}{hub} does not answer: {in_few_words(innermost(error))}."
