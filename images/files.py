"""The files of a build that no package index has, such as EFA's installer: fetched, checked, laid into docker/files.

`wanted` says what a file brings with it, `at_hand` looks in the user's cache and in docker/files, `Source` fetches the
rest: from a mirror, which is a folder or an http(s) address that has the files under their own names, or, without one,
from each file's own URL. With a mirror nothing else is asked. What has a sha256 is checked by it each time; a signature
and its key prove themselves in the build.
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

import requests
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

from berth.images import pins
from berth.images.errors import UserError
from berth.images.network import gather, without_password

CACHE = pins.CACHE / "files"
PAUSES_S = (1, 4)
"""Seconds before a dropped connection is tried again, as often as there are numbers."""
_TIMEOUT_S = (10, 60)  # to connect, and between two pieces
_PIECE = 1 << 20
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Wanted:
    """One file to have, `part` and `version` say what for; sha256 is empty where none is known yet or needed."""

    part: str
    version: str
    name: str
    url: str
    sha256: str = ""
    signed: bool = False
    """Whether it is a signature or its key, which must look like OpenPGP."""

    @property
    def otherwise(self) -> str:
        """What to do where it can't be had."""
        return f"or build with --without {self.part}."


Show = Callable[[Wanted, int, int], None]
"""Called with a file, the bytes that are here and all its bytes, 0 where that is not known."""


class _Dropped(Exception):
    """A host gave no answer, or not all of it: worth another try."""


def wanted(file: pins.File) -> list[Wanted]:
    """The file itself and, where it is signed, its signature, which lies beside it, and the key."""
    sha256 = "" if file.sha256 == pins.UNPINNED else file.sha256
    found = [Wanted(file.part, file.version, file.name, file.url, sha256)]
    if file.key_fingerprint:
        signature = f"{file.url}.sig" if file.url else ""
        found.append(Wanted(file.part, file.version, f"{file.name}.sig", signature, signed=True))
        found.append(Wanted(file.part, file.version, file.key_file, file.key_url, signed=True))
    return found


def of_image(profile: pins.Profile, image: str) -> list[Wanted]:
    """What a build of this image needs; a file without a pinned hash is refused elsewhere, and not looked for."""
    files = [profile.files[part] for part in pins.FILE_PARTS[image] if part in profile.files]
    return [want for file in files if file.sha256 != pins.UNPINNED for want in wanted(file)]


def at_hand(want: Wanted, folders: Iterable[Path], say: Callable[[str], None]) -> Path | None:
    """The first of these folders' files of that name that is the right one; None without. Says why one is not."""
    for path in (folder / want.name for folder in folders):
        if path.is_file():
            fault = wrong(want, path)
            if not fault:
                return path
            say(f"{path} is not used: {fault}")
    return None


def wrong(want: Wanted, path: Path) -> str:
    """In which way a file is not the wanted one, a few words; empty where it is."""
    if want.signed and not _openpgp(path):
        return "it is no OpenPGP file, perhaps a web page that says why"
    if want.sha256:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != want.sha256:
            return f"its sha256 is {found}, and docker/pins.toml has {want.sha256}"
    return ""


def _openpgp(path: Path) -> bool:
    """By its beginning: the first bit of a packet, or the line of its form in text (RFC 9580, 4.2 and 6.2)."""
    with path.open("rb") as file:
        head = file.read(64)
    return bool(head) and (head[0] >= 0x80 or head.startswith(b"-----BEGIN PGP "))


def link(paths: Sequence[Path], folder: Path) -> None:
    """Puts files into the build context, as hard links where the file system allows."""
    for path in paths:
        target = folder / path.name
        if target.exists() and (target.samefile(path) or _digest(target) == _digest(path)):
            continue
        # Aside first, then renamed: another build may do the same at this moment.
        aside = folder / f".{path.name}.{os.getpid()}"
        with _said_of(folder, path.name):
            try:
                os.link(path, aside)
            except OSError:
                shutil.copyfile(path, aside)
            aside.replace(target)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mirror(text: str | None) -> str:
    """A mirror as the user gave it, checked: an http(s) address or an existing folder; empty for none."""
    if not text:
        return ""
    shown = without_password(text)
    if _is_address(text):
        return text.rstrip("/")
    if "://" in text:
        raise UserError(f"the mirror {shown} is neither a folder nor an http(s) address: give --mirror one of them.")
    folder = Path(text).expanduser()
    if not folder.is_dir():
        raise UserError(f"the mirror {shown} is no folder here: mount it, or give --mirror another one.")
    return str(folder)


def _is_address(place: str) -> bool:
    return place.lower().startswith(("http://", "https://"))


@dataclass(frozen=True)
class Source:
    """Where files are fetched from: a mirror as `mirror` gives it, empty for each file's own URL; `ca` a CA bundle."""

    mirror: str = ""
    ca: Path | None = None

    def origin(self, want: Wanted) -> str:
        """The path or address of a file; empty where it has none."""
        if not self.mirror:
            return want.url
        return f"{self.mirror}/{quote(want.name)}" if _is_address(self.mirror) else str(Path(self.mirror) / want.name)

    def shown(self, want: Wanted) -> str:
        """The same, fit to be printed."""
        return without_password(self.origin(want))

    def lacks(self, wants: Iterable[Wanted], *, ask: bool = True) -> list[str]:
        """What can't be had from here, a sentence each; with `ask` False no network is touched."""
        sentences: dict[str, None] = {}
        silent: set[str] = set()
        for want in wants:
            host = urlsplit(self.origin(want)).netloc
            if host in silent or (host and not ask):
                continue
            try:
                _retried(lambda want=want: self._look(want))  # type: ignore[misc]
            except _Dropped as error:
                sentences[self._unreached(want, error)] = None
                silent.add(host)
            except UserError as lack:
                sentences[str(lack)] = None
        return list(sentences)

    def fetch(self, want: Wanted, folder: Path, show: Show = lambda *_: None) -> Path:
        """Fetches a file into `folder`, checked before it has its name there; UserError leaves nothing behind."""
        with _said_of(folder, want.name):
            folder.mkdir(parents=True, exist_ok=True)
            aside = folder / f".{want.name}.{os.getpid()}"
            try:
                _retried(lambda: self._pour(want, aside, show))
                fault = wrong(want, aside)
                if fault:
                    raise UserError(
                        f"{want.name} from {self.shown(want)} is not the file that it should be, and was deleted: "
                        f"{fault}; look what is there, {want.otherwise}"
                    )
                return aside.replace(folder / want.name)
            except _Dropped as error:
                raise UserError(self._unreached(want, error)) from None
            finally:
                aside.unlink(missing_ok=True)

    def _look(self, want: Wanted) -> None:
        with self._opened(want):
            pass

    def _pour(self, want: Wanted, target: Path, show: Show) -> None:
        done = 0
        with self._opened(want) as (pieces, total), target.open("wb") as file:
            for piece in pieces:
                file.write(piece)
                done += len(piece)
                show(want, done, total)

    @contextmanager
    def _opened(self, want: Wanted) -> Iterator[tuple[Iterator[bytes], int]]:
        """A file's pieces, and how many bytes they will be."""
        origin = self.origin(want)
        if not origin:
            raise UserError(
                f"{want.part} {want.version} has no url in docker/pins.toml: give --mirror FOLDER|URL that has "
                f"{want.name}, {want.otherwise}"
            )
        if not _is_address(origin):
            try:
                file = Path(origin).open("rb")  # noqa: SIM115  # below, for what it refuses is told from a full disk
            except OSError as error:
                lacking = isinstance(error, FileNotFoundError)
                raise UserError(self._lack(want) if lacking else f"{origin} can't be read: {error.strerror}.") from None
            with file:
                yield iter(partial(file.read, _PIECE), b""), os.fstat(file.fileno()).st_size
            return
        try:
            verify = str(self.ca) if self.ca else True
            # As it lies there: a server that calls a .tar.gz compressed content would have it unpacked on the way.
            headers = {"Accept-Encoding": "identity"}
            with requests.get(origin, stream=True, timeout=_TIMEOUT_S, verify=verify, headers=headers) as answer:
                if answer.status_code in (404, 410):
                    raise UserError(self._lack(want))
                if 400 <= answer.status_code < 500:
                    raise UserError(
                        f"{self._place(want)} answers {answer.status_code} {answer.reason} for {want.name}: see that "
                        f"it may be read from there, give --mirror another place, {want.otherwise}"
                    )
                answer.raise_for_status()
                yield answer.raw.stream(_PIECE, decode_content=False), int(answer.headers.get("Content-Length", 0))
        except (RequestException, HTTPError) as error:
            raise _Dropped(_reason(error)) from None

    def _unreached(self, want: Wanted, error: "_Dropped") -> str:
        return (
            f"{want.name} can't be fetched from {self._place(want)} ({error}): look at the network, give --mirror "
            f"FOLDER|URL that has it, {want.otherwise}"
        )

    def _place(self, want: Wanted) -> str:
        """The mirror, or the host of the file's own URL."""
        return f"the mirror {without_password(self.mirror)}" if self.mirror else str(urlsplit(want.url).hostname)

    def _lack(self, want: Wanted) -> str:
        what = f"{want.name}, which {want.part} {want.version} needs"
        if self.mirror:
            return f"{self._place(want)} lacks {what}: put it there, {want.otherwise}"
        return f"{self.shown(want)} is not there: mend its url in docker/pins.toml, give --mirror, {want.otherwise}"


def _retried(act: Callable[[], None]) -> None:
    """Does it, again after a pause where the connection dropped."""
    for pause in PAUSES_S:
        try:
            return act()
        except _Dropped:
            time.sleep(pause)
    return act()


def _reason(error: BaseException) -> str:
    """The innermost cause, in a few words and without passwords."""
    while isinstance(error, RequestException | HTTPError):
        inner = error.__cause__ or error.__context__ or next((a for a in error.args if isinstance(a, Exception)), None)
        if inner is None:
            break
        error = inner
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return without_password(" ".join(str(text).split()))[:160].rstrip(".")


def fetch(source: Source, want: Wanted, folder: Path, say: Callable[[str], None], show: Show) -> Path:
    """`Source.fetch`, with a line before it and one after it."""
    say(f"fetching {want.name} from {source.shown(want)}")
    began = time.monotonic()
    path = source.fetch(want, folder, show)
    say(f"fetched {want.name}: {path.stat().st_size / 1e6:.1f} MB in {time.monotonic() - began:.1f} s")
    return path


def fetch_and_pin(file: pins.File, path: Path, place: str | None, say: Callable[[str], None], show: Show) -> pins.File:
    """Fetches a file anew, with its signature and key, into the cache, and records its sha256 in `path`, a pins.toml.

    UserError where it is pinned already and differs. place: a mirror, None for the file's own URL.
    """
    source = Source(mirror(place), gather(os.environ).ca)
    lacks = source.lacks(wanted(file))
    if lacks:
        raise UserError(" Also, ".join(lacks))
    fetched = [fetch(source, want, CACHE, say, show) for want in wanted(file)]
    pinned = replace(file, sha256=_digest(fetched[0]))
    if file.sha256 == pins.UNPINNED:
        with _said_of(path.parent, path.name):
            aside = path.with_name(f".{path.name}.{os.getpid()}")
            aside.write_text(pins.record_sha256(path.read_text(), file.key, pinned.sha256))
            aside.replace(path)
        say(f"recorded in {path}: commit it, so that every build takes this file and no other")
    else:
        say(f"{path} has this sha256 already")
    return pinned


@contextmanager
def _said_of(folder: Path, name: str) -> Iterator[None]:
    """What the disk refuses, as a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise UserError(
                f"the disk of {folder} is full, and {name} does not fit: free some, for example with `python build.py "
                "clean`, or set XDG_CACHE_HOME to a folder on another disk."
            ) from None
        raise UserError(
            f"{name} can't be written to {folder} ({error.strerror}): see that this user may write there."
        ) from None
