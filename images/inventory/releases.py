"""Which packages have a newer release, as the index says that pip asks. `newest` and `is_newer` are pure.

To lock again and compare would say less: what docker/pins.toml names stays as it is there, every lock is resolved again
in minutes where this asks in seconds, and one package that an index lacks ends it.
"""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import requests
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from berth.images.build_network import Network, in_few_words, innermost, without_password
from berth.images.inventory.locked_packages import LockedPackage, some

PYPI = "https://pypi.org/simple"
_SIMPLE = "application/vnd.pypi.simple.v1+json"  # PEP 691
_TIMEOUT_S = 20
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Newer:
    """A package whose index has a newer release for the images' Python."""

    locked: LockedPackage
    newest: str


def newest(answer: Mapping[str, Any], python: str) -> str:
    """The newest release of an index's answer (PEP 691) that is final, not yanked, and for this Python; else empty."""
    found: set[Version] = set()
    for file in answer.get("files", []):
        name = str(file.get("filename", ""))
        try:
            version = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
            fits = SpecifierSet(file.get("requires-python") or "").contains(f"{python}.99")
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion, InvalidSpecifier):
            continue  # files of old forms, such as .exe
        if fits and not file.get("yanked") and not version.is_prerelease:
            found.add(version)
    return str(max(found)) if found else ""


def is_newer(candidate: str, version: str) -> bool:
    """Whether a release is newer than a version, whose build, such as +cpu, does not count."""
    return bool(candidate) and Version(Version(candidate).public) > Version(Version(version).public)


def ask_index(packages: Sequence[LockedPackage], network: Network, python: str) -> tuple[list[Newer], list[str]]:
    """The packages with newer releases, and a sentence for what the index says nothing of.

    The index is pip's, and after it pip's further ones; of several that know a package the newest release counts.
    """
    urls = [(network.index.url or PYPI).rstrip("/"), *(url.rstrip("/") for url in network.index.extra)]
    names = sorted({package.name for package in packages})
    found: dict[str, str] = {}
    refusals: dict[str, str] = {}
    with requests.Session() as session, ThreadPoolExecutor(_AT_ONCE) as pool:
        session.headers["Accept"] = _SIMPLE
        session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=_AT_ONCE))

        def ask(name: str) -> tuple[list[str], str]:
            answers = [_ask_one(session, f"{url}/{name}/", network, python) for url in urls]
            return [release for release, _ in answers if release], "; ".join(reason for _, reason in answers if reason)

        for name, (releases, refusal) in zip(names, pool.map(ask, names), strict=True):
            if releases:
                found[name] = str(max(Version(release) for release in releases))
            else:
                refusals[name] = refusal or "no release for this Python"
    newer = [
        Newer(package, found[package.name])
        for package in packages
        if package.name in found and is_newer(found[package.name], package.version)
    ]
    if not refusals:
        return newer, []
    reason = next(iter(refusals.values()))
    return newer, [
        f"Whether {some(refusals)} has a newer release is not known: {without_password(urls[0])} says: {reason}; look "
        "at pip's index-url, and whether it answers with JSON (PEP 691)."
    ]


def _ask_one(session: requests.Session, url: str, network: Network, python: str) -> tuple[str, str]:
    """The newest release at one address, or why there is none, in a few words."""
    try:
        answer = session.get(url, timeout=_TIMEOUT_S, verify=_verify(url, network))
        if answer.status_code != 200:
            return "", f"{answer.status_code} {answer.reason}"
        found = answer.json()
        return (newest(found, python), "") if isinstance(found, dict) else ("", "no JSON")
    except requests.exceptions.JSONDecodeError:
        return "", "no JSON"
    except requests.RequestException as error:
        return "", in_few_words(innermost(error))


def _verify(url: str, network: Network) -> bool | str:
    """What the server's certificate is checked by; not at all for a host that pip is told to trust."""
    host = re.sub(r"^\w+://(?:[^@/]*@)?([^/]*).*", r"\1", url)
    if host in network.index.trusted or host.partition(":")[0] in network.index.trusted:
        return False
    return str(network.ca) if network.ca else True
