"""Fetches files that no package index has, from a mirror or, without one, from each file's own URL.

A mirror is a folder or an http(s) address that has the files under their own names; if there is one, no other host is
used. `FileSource` reports missing files, and fetches and checks the others; `fetch_and_pin` records a file's hash.
"""

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlsplit

import requests
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from berth.common.console import Show
from berth.common.errors import UserError, refuse
from berth.common.files import atomic_write, explain_os_errors, sha256
from berth.common.http import in_few_words, innermost, without_password
from berth.images.network import build_files
from berth.images.network.build_files import WantedFile, mismatch, with_signature
from berth.images.network.build_network import gather
from berth.images.pins import pins

PAUSES_S = (1, 4)
"""Pauses before each retry after a dropped connection."""
_TIMEOUT_S = (10, 60)  # to connect, and between two pieces
_PIECE = 1 << 20


class MissingFile(UserError):
    """A file can't be fetched: the reason and a remedy."""

    def __init__(self, want: WantedFile, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}, or build with --without {want.part}.")


class _RetryableError(Exception):
    """A host did not answer, or not completely; retry."""


def mirror(text: str | None) -> str:
    """Validates the option --mirror: an http(s) address or an existing folder; empty for none."""
    if not text:
        return ""
    shown = without_password(text)
    if _is_address(text):
        if "?" in text or "#" in text:
            raise UserError(
                f"the mirror {re.split('[?#]', shown)[0]} has a query or a fragment, but file names are appended: "
                "give --mirror an address without, and a password as https://USER:PASSWORD@HOST/FOLDER."
            )
        return text.rstrip("/")
    if "://" in text:
        raise UserError(f"the mirror {shown} is neither a folder nor an http(s) address: give --mirror one of them.")
    try:
        folder = Path(text).expanduser()
        if not folder.is_dir():
            raise UserError(f"the mirror {shown} is not a folder here: mount it, or give --mirror another one.")
    except RuntimeError:
        raise UserError(f"the mirror {shown} is in the home of an unknown user: give its full path.") from None
    except OSError as error:
        raise UserError(
            f"the mirror {shown} can't be read ({error.strerror}): make it readable for this user, or give --mirror "
            "another one."
        ) from None
    return str(folder)


def _is_address(place: str) -> bool:
    return place.lower().startswith(("http://", "https://"))


@dataclass(frozen=True)
class FileSource:
    """Where files come from. mirror: a validated mirror, empty for each file's own URL; ca: a CA bundle."""

    mirror: str = ""
    ca: Path | None = None

    def origin(self, want: WantedFile) -> str:
        """The path or address of a file; empty if it has none."""
        if not self.mirror:
            return want.url
        return f"{self.mirror}/{quote(want.name)}" if _is_address(self.mirror) else str(Path(self.mirror) / want.name)

    def shown(self, want: WantedFile) -> str:
        """The same without a password."""
        return without_password(self.origin(want))

    def missing(self, wants: Iterable[WantedFile], *, ask: bool = True) -> list[str]:
        """Why files can't be fetched, a sentence each. `ask`: whether to ask other hosts; a mirror that is a folder is
        always checked.
        """
        sentences, silent_hosts = [], set()
        for want in wants:
            host = urlsplit(self.origin(want)).netloc
            if host in silent_hosts or (host and not ask):
                continue
            try:
                _retried(lambda want=want: self._check(want))  # type: ignore[misc]
            except _RetryableError as error:
                silent_hosts.add(host)
                sentences.append(str(self._unreachable(want, error)))
            except MissingFile as refused:
                sentences.append(str(refused))
        return sentences

    def fetch(self, want: WantedFile, folder: Path, say: Callable[[str], None], show: Show = lambda *_: None) -> Path:
        """Fetches a file into `folder`, under its name only once it is checked; UserError leaves nothing behind."""
        say(f"fetching {want.name} from {self.shown(want)}")
        began = time.monotonic()
        target = folder / want.name
        with explain_os_errors(folder, want.name):
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(target) as new:
                try:
                    _retried(lambda: self._download(want, new, show))
                except _RetryableError as error:
                    raise self._unreachable(want, error) from None
                fault = mismatch(want, new)
                if fault:
                    raise MissingFile(
                        want,
                        f"{want.name} from {self.shown(want)} is not the pinned file, and was deleted",
                        f"{fault}; check the file there",
                    )
        say(f"fetched {want.name}: {target.stat().st_size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s")
        return target

    def _check(self, want: WantedFile) -> None:
        with self._open(want):
            pass

    def _download(self, want: WantedFile, target: Path, show: Show) -> None:
        done = 0
        with self._open(want) as (pieces, total), target.open("wb") as file:
            for piece in pieces:
                file.write(piece)
                done += len(piece)
                show(want.name, done, total)

    @contextmanager
    def _open(self, want: WantedFile) -> Iterator[tuple[Iterator[bytes], int]]:
        """A file's pieces, and its size in bytes."""
        origin = self.origin(want)
        if not origin:
            raise MissingFile(
                want,
                f"{want.part} {want.version} has no url in docker/pins.toml",
                f"give --mirror FOLDER|URL that has {want.name}",
            )
        if not _is_address(origin):
            try:
                file = Path(origin).open("rb")  # noqa: SIM115  # closed below; separate, to tell read errors from a full disk
            except OSError as error:
                missing = isinstance(error, FileNotFoundError)
                raise (self._not_found(want) if missing else _unreadable(origin, want, error)) from None
            with file:
                yield _pieces(file, origin, want), os.fstat(file.fileno()).st_size
            return
        try:
            verify = str(self.ca) if self.ca else True
            # Without it, a .tar.gz that a server labels as compressed content would be unpacked.
            headers = {"Accept-Encoding": "identity"}
            with requests.get(origin, stream=True, timeout=_TIMEOUT_S, verify=verify, headers=headers) as answer:
                if answer.status_code in (404, 410):
                    raise self._not_found(want)
                if 400 <= answer.status_code < 500:
                    raise MissingFile(
                        want,
                        f"{self._place(want)} answers {answer.status_code} {answer.reason} for {want.name}",
                        "check that it may be downloaded, give --mirror another place",
                    )
                answer.raise_for_status()
                yield answer.raw.stream(_PIECE, decode_content=False), int(answer.headers.get("Content-Length", 0))
        except (RequestException, HTTPError) as error:
            raise _RetryableError(in_few_words(innermost(error))) from None

    def _unreachable(self, want: WantedFile, error: "_RetryableError") -> MissingFile:
        return MissingFile(
            want,
            f"{want.name} can't be fetched from {self._place(want)} ({error})",
            "check the network, give --mirror FOLDER|URL that has it",
        )

    def _place(self, want: WantedFile) -> str:
        """The mirror, or the host of the file's own URL, for messages."""
        return f"the mirror {without_password(self.mirror)}" if self.mirror else str(urlsplit(want.url).hostname)

    def _not_found(self, want: WantedFile) -> MissingFile:
        what = f"{want.name}, which {want.part} {want.version} needs"
        if self.mirror:
            return MissingFile(want, f"{self._place(want)} does not have {what}", "put it there")
        return MissingFile(want, f"{self.shown(want)} does not exist", "fix its url in docker/pins.toml, give --mirror")


def _pieces(file: BinaryIO, origin: str, want: WantedFile) -> Iterator[bytes]:
    """Reads a mirror's file; its read errors must not look like errors of the disk that is written to."""
    try:
        while piece := file.read(_PIECE):
            yield piece
    except OSError as error:
        raise _unreadable(origin, want, error) from None


def _unreadable(origin: str, want: WantedFile, error: OSError) -> MissingFile:
    return MissingFile(want, f"{origin} can't be read ({error.strerror})", "make it readable for this user")


def _retried(act: Callable[[], None]) -> None:
    """Calls `act`, again after a pause if the connection dropped."""
    for pause in PAUSES_S:
        try:
            return act()
        except _RetryableError:
            time.sleep(pause)
    return act()


def fetch_and_pin(
    file: pins.PinnedFile, path: Path, place: str | None, say: Callable[[str], None], show: Show
) -> pins.PinnedFile:
    """Fetches a file, its signature and key into the cache, and records its sha256 in `path`, a pins.toml.

    UserError if another sha256 is pinned already. place: a mirror, None for the file's own URL.
    """
    source = FileSource(mirror(place), gather(os.environ).ca)
    refuse(source.missing(with_signature(file)))
    fetched = [source.fetch(want, build_files.CACHE, say, show) for want in with_signature(file)]
    pinned = replace(file, sha256=sha256(fetched[0]))
    if file.sha256 == pins.UNPINNED:
        with explain_os_errors(path.parent, path.name), atomic_write(path) as new:
            new.write_text(pins.record_sha256(path.read_text(), file.key, pinned.sha256))
        say(f"recorded the sha256 in {path}: commit it, so that every build uses exactly this file")
    else:
        say(f"{path} has this sha256 already")
    return pinned
