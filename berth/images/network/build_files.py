"""The files of a build that no package index has, such as EFA's installer: lists, finds and checks them.

`with_signature` lists a file with its signature and key, `wanted_files` the files of images. `find_valid_file` looks in
the user's cache and docker/files; downloads.py fetches the rest. A file with a sha256 is checked each time; the build
checks signatures and keys.
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
    """A file that a build needs, for `part` and `version`; sha256: empty if unknown or not needed."""

    part: str
    version: str
    name: str
    url: str
    sha256: str = ""
    signed: bool = False
    """Whether it is a signature or its key, which must look like OpenPGP."""


def with_signature(file: pins.PinnedFile) -> list[WantedFile]:
    """The file and, if it is signed, its signature (next to it) and the key."""
    sha256 = "" if file.sha256 == pins.UNPINNED else file.sha256
    found = [WantedFile(file.part, file.version, file.name, file.url, sha256)]
    if file.key_fingerprint:
        signature = f"{file.url}.sig" if file.url else ""
        found.append(WantedFile(file.part, file.version, f"{file.name}.sig", signature, signed=True))
        found.append(WantedFile(file.part, file.version, file.key_file, file.key_url, signed=True))
    return found


def wanted_files(profile: pins.Profile, images: Sequence[str]) -> list[WantedFile]:
    """The files that builds of these images need; files without a pinned hash are skipped."""
    files = files_of(profile, images)
    return [want for file in files if file.sha256 != pins.UNPINNED for want in with_signature(file)]


def find_valid_file(want: WantedFile, folders: Iterable[Path], say: Callable[[str], None]) -> Path | None:
    """The first valid file of that name in these folders, or None. Reports why a file is not valid."""
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
    """How a file differs from the wanted one, in a few words; empty if it does not."""
    if want.signed and not _openpgp(path):
        return "it is not an OpenPGP file, but perhaps an HTML error page"
    if want.sha256:
        found = sha256(path)
        if found != want.sha256:
            return f"its sha256 is {found}, but docker/pins.toml has {want.sha256}"
    return ""


def _openpgp(path: Path) -> bool:
    """Whether it starts with an OpenPGP packet or its ASCII armour (RFC 9580, 4.2 and 6.2)."""
    with path.open("rb") as file:
        head = file.read(64)
    return bool(head) and (head[0] >= 0x80 or head.startswith(b"-----BEGIN PGP "))
