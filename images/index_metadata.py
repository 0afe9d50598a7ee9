"""What a package index says of a project: its releases (PEP 691, 700), and what one of them asks for (PEP 658, else the
METADATA inside its wheel, of which only the end is read).

`parse_project`, `parse_metadata` and what `Release` says are pure; `Index` asks the indexes of this machine's pip.
"""

import email.parser
import io
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any, Self
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import requests
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from berth.common.errors import UserError
from berth.common.http import in_few_words, innermost, without_password
from berth.images.build_network import Network
from berth.images.combinations import allows_python

PYPI = "https://pypi.org/simple"
_SIMPLE = "application/vnd.pypi.simple.v1+json"  # PEP 691
_NO_JSON = "no JSON"
_TIMEOUT_S = 20
_BLOCK = 1 << 16
_WHOLE = 32 << 20
"""Bytes of a wheel that is fetched as a whole from a server that serves no parts."""
_GLIBC = range(5, 29)
"""The minor versions of glibc 2 whose wheels an image takes: those that its locks are made for (manylinux_2_28)."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a release. `metadata`: whether the index has its METADATA as a file of its own, NAME.metadata."""

    name: str
    url: str
    requires_python: str = ""
    yanked: bool = False
    uploaded: str = ""
    metadata: bool = False

    @property
    def is_wheel(self) -> bool:
        return self.name.endswith(".whl")

    def allows(self, python: str) -> bool:
        """Whether it says that it is for a Python, such as 3.11."""
        return allows_python(self.requires_python, python)

    def fits(self, python: str) -> bool:
        """Whether it is a wheel that this Python can install on the images' platform, linux/amd64."""
        return (
            self.is_wheel and self.allows(python) and not supported_tags(python).isdisjoint(_wheel_parts(self.name)[1])
        )


@dataclass(frozen=True, slots=True)
class Release:
    """A version of a project, with its files; `project` is its name as the index has it."""

    project: str
    version: Version
    files: tuple[IndexFile, ...]

    @property
    def day(self) -> str:
        """The day of its first upload, such as 2025-01-29; empty where the index does not say."""
        return min((file.uploaded[:10] for file in self.files if file.uploaded), default="")

    @property
    def yanked(self) -> bool:
        """Whether all of it was withdrawn."""
        return all(file.yanked for file in self.files)

    @property
    def requires_python(self) -> str:
        return next((file.requires_python for file in self.files if file.requires_python), "")

    def is_for(self, python: str) -> bool:
        """Whether it is final, not withdrawn, and says that it is for this Python, in whatever form it comes."""
        return not self.version.is_prerelease and any(file.allows(python) and not file.yanked for file in self.files)

    def has_wheel(self, python: str) -> bool:
        """Whether it has a wheel for this Python on linux/amd64."""
        return any(file.fits(python) for file in self.files)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a release says of itself: `requires` are its Requires-Dist, as they stand there."""

    requires_python: str
    requires: tuple[str, ...]


class UnknownProject(UserError):
    """No index has a project of that name; `says` is that without what to do."""

    def __init__(self, project: str, index: str) -> None:
        self.project = project
        self.says = f"The package index {index} has no package {project}"
        super().__init__(f"{self.says}: look at how it is spelt.")


def remedy(reason: str) -> str:
    """What to do about an index that gave no releases of a project, by the reason that `Index.look_up` gives."""
    if _NO_JSON in reason:
        return "name one that answers with JSON (PEP 691), by pip's index-url or the variable PIP_INDEX_URL"
    return (
        "see whether this machine reaches it, by the name that pip's index-url or the variable PIP_INDEX_URL gives it, "
        "and run the command again when it answers"
    )


@cache
def supported_tags(python: str) -> frozenset[Tag]:
    """The tags of the wheels that a CPython, such as 3.11, installs in an image."""
    major, minor = map(int, python.split("."))
    old = ["manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    platforms = [*(f"manylinux_2_{glibc}_x86_64" for glibc in _GLIBC), *old]
    return frozenset(
        [*cpython_tags((major, minor), platforms=platforms), *compatible_tags((major, minor), platforms=platforms)]
    )


def parse_project(answer: Mapping[str, Any], url: str = "") -> list[Release]:
    """The releases in an index's answer (PEP 691), the newest first; `url` is what its files' URLs are relative to."""
    files: dict[Version, list[IndexFile]] = {}
    for file in answer.get("files") or []:
        name = str(file.get("filename", ""))
        try:
            version = _wheel_parts(name)[0] if name.endswith(".whl") else parse_sdist_filename(name)[1]
        except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
            continue  # files of old forms, such as .exe
        files.setdefault(version, []).append(
            IndexFile(
                name,
                urljoin(url, str(file.get("url", ""))),
                file.get("requires-python") or "",
                bool(file.get("yanked")),
                str(file.get("upload-time") or ""),
                bool(file.get("core-metadata") or file.get("data-dist-info-metadata")),
            )
        )
    project = str(answer.get("name", ""))
    return [Release(project, version, tuple(files[version])) for version in sorted(files, reverse=True)]


def parse_metadata(text: str) -> Metadata:
    """The text of a METADATA."""
    fields = email.parser.HeaderParser().parsestr(text)
    requires = tuple(" ".join(str(each).split()) for each in fields.get_all("Requires-Dist", []))
    return Metadata(str(fields.get("Requires-Python") or ""), requires)


@cache
def _wheel_parts(name: str) -> tuple[Version, frozenset[Tag]]:
    _, version, _, tags = parse_wheel_filename(name)
    return version, tags


class Index:
    """The index of this machine's pip and its further ones, over connections that are kept; ends with its `with`.

    It remembers what it was told. Of several indexes that know a project all releases count.
    """

    def __init__(self, network: Network, at_once: int = 8) -> None:
        self._network = network
        self.urls = [(network.index.url or PYPI).rstrip("/"), *(url.rstrip("/") for url in network.index.extra)]
        self._session = requests.Session()
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=at_once))
        self._projects: dict[str, tuple[list[Release], str]] = {}
        self._metadata: dict[tuple[str, Version], Metadata] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @property
    def name(self) -> str:
        """What a sentence calls it."""
        return without_password(self.urls[0])

    def look_up(self, project: str) -> tuple[list[Release], str]:
        """The releases of a project, the newest first, and in a few words why an index gave none; either may be
        empty.
        """
        name = canonicalize_name(project)
        if name not in self._projects:
            answers = [self._ask(f"{url}/{name}/") for url in self.urls]
            merged: dict[Version, Release] = {}
            for release in (release for found, _ in answers for release in found):
                known = merged.get(release.version)
                files = (*known.files, *release.files) if known else release.files
                merged[release.version] = Release(name, release.version, files)
            reasons = "; ".join(reason for _, reason in answers if reason)
            self._projects[name] = [merged[version] for version in sorted(merged, reverse=True)], reasons
        return self._projects[name]

    def releases(self, project: str) -> list[Release]:
        """The releases of a project, the newest first; UserError where no index gives one, UnknownProject where they
        have none.
        """
        found, reason = self.look_up(project)
        if found:
            return found
        if all(each.startswith("404 ") for each in reason.split("; ") if each):
            raise UnknownProject(project, self.name)
        raise UserError(f"The package index {self.name} gave no answer for {project} ({reason}): {remedy(reason)}.")

    def metadata(self, release: Release) -> Metadata:
        """What a release asks for, by a wheel of it; UserError where it has none, or where the index fails."""
        key = (release.project, release.version)
        if key not in self._metadata:
            wheels = [file for file in release.files if file.is_wheel]
            chosen = next((file for file in wheels if file.fits("3.11")), None) or next(iter(wheels), None)
            if chosen is None:
                raise UserError(
                    f"{release.project} {release.version} has no wheel, which would say what it asks for: choose a "
                    "release that has one."
                )
            self._metadata[key] = parse_metadata(self._metadata_text(chosen))
        return self._metadata[key]

    def _ask(self, url: str) -> tuple[list[Release], str]:
        """The releases at one address, or why there is none, in a few words."""
        try:
            answer = self._get(url, Accept=_SIMPLE)
            if answer.status_code != 200:
                return [], f"{answer.status_code} {answer.reason}"
            found = answer.json()
            return (parse_project(found, answer.url), "") if isinstance(found, dict) else ([], _NO_JSON)
        except requests.exceptions.JSONDecodeError:
            return [], _NO_JSON
        except requests.RequestException as error:
            return [], in_few_words(innermost(error))

    def _metadata_text(self, file: IndexFile) -> str:
        try:
            if file.metadata:
                answer = self._get(f"{file.url}.metadata")
                if answer.status_code == 200:
                    return answer.content.decode(errors="replace")
            with zipfile.ZipFile(_RangedFile(lambda wanted: self._get(file.url, Range=wanted))) as wheel:
                name = next(name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
                return wheel.read(name).decode(errors="replace")
        except (requests.RequestException, zipfile.BadZipFile, StopIteration) as error:
            reason = in_few_words(innermost(error)) or "it has no METADATA"
        raise UserError(
            f"The package index {self.name} does not say what {file.name} asks for ({reason}): run the command again "
            "when it answers."
        )

    def _get(self, url: str, **headers: str) -> requests.Response:
        auth = login_for(url, self.urls)
        verify = _verify(url, self._network)
        return self._session.get(url, timeout=_TIMEOUT_S, verify=verify, headers=headers, auth=auth, stream=True)


def login_for(url: str, indexes: Sequence[str]) -> tuple[str, str] | None:
    """The user and password for an index or for a file of it, whose URL has no login: those of the index of the same
    scheme, host and port with which its path has the most folders in common, as in pip.
    """

    def place(parts: SplitResult) -> tuple[str, str]:
        return parts.scheme, parts.netloc.rpartition("@")[2].lower()

    def folders_in_common(parts: SplitResult) -> int:
        pairs = zip(parts.path.split("/"), wanted.path.split("/"), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))

    wanted = urlsplit(url)
    near = [parts for each in indexes if place(parts := urlsplit(each)) == place(wanted)]
    found = max(near, key=folders_in_common, default=None)
    return (unquote(found.username), unquote(found.password or "")) if found and found.username else None


class _RangedFile(io.RawIOBase):
    """A file on a server, of which only what is read is fetched, its end first: a zip has its list of files there.

    `get` asks for the bytes of a Range header.
    """

    def __init__(self, get: Callable[[str], requests.Response]) -> None:
        self._get = get
        self._position = 0
        answer = get(f"bytes=-{_BLOCK}")
        place = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        if answer.status_code == 206 and place:
            self._start, self._size = int(place[1]), int(place[2])
        elif answer.status_code == 200 and int(answer.headers.get("Content-Length") or _WHOLE + 1) <= _WHOLE:
            self._start, self._size = 0, int(answer.headers["Content-Length"])
        else:
            answer.close()
            raise requests.HTTPError(
                "it serves no parts of files" if answer.ok else f"{answer.status_code} {answer.reason}"
            )
        self._bytes = answer.content

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._position)
        begin = self._position - self._start
        if wanted > 0 and not 0 <= begin <= begin + wanted <= len(self._bytes):
            # And what lies before it: of a long list of files that is the METADATA, which wheels have at their end.
            self._start = max(self._position - _BLOCK, 0)
            end = min(self._position + max(wanted, _BLOCK), self._size)
            answer = self._get(f"bytes={self._start}-{end - 1}")
            self._bytes, begin = answer.content, self._position - self._start
            if answer.status_code != 206 or len(self._bytes) != end - self._start:
                raise requests.HTTPError(f"{answer.status_code} {answer.reason}, {len(self._bytes)} bytes")
        buffer[: max(wanted, 0)] = self._bytes[begin : begin + max(wanted, 0)]
        self._position += max(wanted, 0)
        return max(wanted, 0)


def _verify(url: str, network: Network) -> bool | str:
    """What the server's certificate is checked by; not at all for a host that pip is told to trust."""
    host = re.sub(r"^\w+://(?:[^@/]*@)?([^/]*).*", r"\1", url)
    if host in network.index.trusted or host.partition(":")[0] in network.index.trusted:
        return False
    return str(network.ca) if network.ca else True
