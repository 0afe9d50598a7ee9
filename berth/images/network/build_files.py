"""The files of a build that no package index has, such as EFA's installer: which they are, and whether one is right.

`with_signature` says what a file brings with it, `of_images` what images need, `at_hand` looks in the user's cache
and in docker/files; downloads.py fetches the rest. What has a sha256 is checked by it each time; a signature and its
key prove themselves in the build.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.common.files import sha256
from berth.images.pins import pins
from berth.images.pins.parts import files_of

CACHE = pins.CACHE / "files"


@dataclass(frozen=True)
class WantedFile:
    """One file to have, `part` and `version` say what for; sha256 is empty where none is known yet or needed."""

    part: str
    version: str
    name: str
    url: str
    sha256: str = ""
    signed: bool = False
    """Whether it is a signature or its key, which must look like OpenPGP."""


def with_signature(file: pins.PinnedFile) -> list[WantedFile]:
    """The file itself and, where it is signed, its signature, which lies next to it, and the key."""
    sha256 = "" if file.sha256 == pins.UNPINNED else file.sha256
    found = [WantedFile(file.part, file.version, file.name, file.url, sha256)]
    if file.key_fingerprint:
        signature = f"{file.url}.sig" if file.url else ""
        found.append(WantedFile(file.part, file.version, f"{file.name}.sig", signature, signed=True))
        found.append(WantedFile(file.part, file.version, file.key_file, file.key_url, signed=True))
    return found


def wanted_files(profile: pins.Profile, images: Sequence[str]) -> list[WantedFile]:
    """What builds of these images need, each once; a file without a pinned hash is not looked for."""
    files = files_of(profile, images)
    return [want for file in files if file.sha256 != pins.UNPINNED for want in with_signature(file)]


def find_valid_file(want: WantedFile, folders: Iterable[Path], say: Callable[[str], None]) -> Path | None:
    """The first of these folders' files of that name that is the right one; None without. Says why one is not."""
    for path in (folder / want.name for folder in folders):
        try:
            if not path.is_file():
                continue
            fault = mismatch(want, path)
        except OSError as error:
            fault = f"it can't be read ({error.strerror})"
        if not fault:
            return path
        say(f"{path} is not used: {fault}")
    return None


def mismatch(want: WantedFile, path: Path) -> str:
    """In which way a file is not the wanted one, a few words; empty where it is."""
    if want.signed and not _openpgp(path):
        return "it is no OpenPGP file, perhaps a web page that says why"
    if want.sha256:
        found = sha256(path)
        if found != want.sha256:
            return f"its sha256 is {found}, and docker/pins.toml has {want.sha256}"
    return ""


def _openpgp(path: Path) -> bool:
    """By its beginning: the first bit of a packet, or the line of its form in text (RFC 9580, 4.2 and 6.2)."""
    with path.open("rb") as file:
        head = file.read(64)
    return bool(head) and (head[0] >= 0x80 or head.startswith(b"-----BEGIN PGP "))
