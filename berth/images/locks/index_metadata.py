"""The releases of a project in the package indexes of this machine (PEP 691).

`parse_project` and `Release` are pure; `Index` makes requests.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import requests
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from berth.common.http import in_few_words, innermost, without_password
from berth.images.network.build_network import Network

PYPI = "https://pypi.org/simple"
_SIMPLE = "application/vnd.pypi.simple.v1+json"  # PEP 691
_NO_JSON = "the answer is not JSON"
_TIMEOUT_S = 20
_GLIBC = range(5, 29)
"""The minor versions of glibc 2 whose wheels images can install: locks are made for manylinux_2_28."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a release."""

    name: str
    requires_python: str = ""
    yanked: bool = False

    def allows(self, python: str) -> bool:
        """Whether its Requires-Python allows a Python, such as 3.11. Like pip, ignores an invalid Requires-Python."""
        try:
            return SpecifierSet(self.requires_python).contains(f"{python}.99")
        except InvalidSpecifier:
            return True

    def fits(self, python: str) -> bool:
        """Whether it is a wheel that this Python can install on linux/amd64."""
        is_wheel = self.name.endswith(".whl")
        return is_wheel and self.allows(python) and not supported_tags(python).isdisjoint(_wheel_parts(self.name)[1])


@dataclass(frozen=True, slots=True)
class Release:
    """A version of a project, with its files."""

    version: Version
    files: tuple[IndexFile, ...]

    def is_for(self, python: str) -> bool:
        """Whether it is final, and has a wheel or source for this Python that is not yanked."""
        return not self.version.is_prerelease and any(file.allows(python) and not file.yanked for file in self.files)

    def has_wheel(self, python: str) -> bool:
        """Whether it has a wheel for this Python on linux/amd64."""
        return any(file.fits(python) for file in self.files)


@cache
def supported_tags(python: str) -> frozenset[Tag]:
    """The tags of the wheels that a CPython, such as 3.11, can install in an image."""
    major, minor = map(int, python.split("."))
    old = ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    platforms = [*(f"manylinux_2_{glibc}_x86_64" for glibc in _GLIBC), *old]
    return frozenset(
        [*cpython_tags((major, minor), platforms=platforms), *compatible_tags((major, minor), platforms=platforms)]
    )


def parse_project(answer: Mapping[str, Any]) -> list[Release]:
    """The releases in an index's answer (PEP 691), the newest first."""
    files: dict[Version, list[IndexFile]] = {}
    for file in answer.get("files") or []:
        name = str(file.get("filename", ""))
        try:
            version = _wheel_parts(name)[0] if name.endswith(".whl") else parse_sdist_filename(name)[1]
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            continue  # old formats, such as .exe
        files.setdefault(version, []).append(
            IndexFile(name, file.get("requires-python") or "", bool(file.get("yanked")))
        )
    return [Release(version, tuple(files[version])) for version in sorted(files, reverse=True)]


@cache
def _wheel_parts(name: str) -> tuple[Version, frozenset[Tag]]:
    _, version, _, tags = parse_wheel_filename(name)
    return version, tags


class Index:
    """Looks up projects in this machine's package index and extra indexes, over reused connections; a context manager.

    If several indexes have a project, their releases are combined.
    """

    def __init__(self, network: Network, at_once: int = 8) -> None:
        self._network = network
        self.urls = [(network.index.url or PYPI).rstrip("/"), *(url.rstrip("/") for url in network.index.extra)]
        self._session = requests.Session()
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=at_once))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def name(self) -> str:
        """The URL of the main index, for messages."""
        return without_password(self.urls[0])

    def look_up(self, project: str) -> tuple[list[Release], str]:
        """The releases of a project, the newest first, and a short reason for each index that failed; either may be
        empty.
        """
        name = canonicalize_name(project)
        answers = [self._ask(f"{url}/{name}/") for url in self.urls]
        files: dict[Version, tuple[IndexFile, ...]] = {}
        for release in (release for found, _ in answers for release in found):
            files[release.version] = (*files.get(release.version, ()), *release.files)
        reasons = "; ".join(reason for _, reason in answers if reason)
        return [Release(version, files[version]) for version in sorted(files, reverse=True)], reasons

    def _ask(self, url: str) -> tuple[list[Release], str]:
        """The releases at one URL, or a short reason why there are none."""
        try:
            answer = self._session.get(
                url,
                timeout=_TIMEOUT_S,
                verify=_verify(url, self._network),
                headers={"Accept": _SIMPLE},
                # The URL's login before netrc's: two indexes on one host may have different logins.
                auth=requests.utils.get_auth_from_url(url) if "@" in url else None,
            )
            if answer.status_code != 200:
                return [], f"{answer.status_code} {answer.reason}"
            found = answer.json()
            return (parse_project(found), "") if isinstance(found, dict) else ([], _NO_JSON)
        except requests.exceptions.JSONDecodeError:
            return [], _NO_JSON
        except requests.RequestException as error:
            return [], in_few_words(innermost(error))


def _verify(url: str, network: Network) -> bool | str:
    """The `verify` argument of requests: no check for pip's trusted hosts."""
    host = re.sub(r"^\w+://(?:[^@/]*@)?([^/]*).*", r"\1", url)
    if host in network.index.trusted or host.partition(":")[0] in network.index.trusted:
        return False
    return network.verify
