"""This machine's apt settings that a build needs: proxies, checks, passwords, and a mirror's sources.

All are texts in apt's formats; `berth/images/network/build_network.py` makes them secrets.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

KEYS = re.compile(r"^Acquire::(https?::|Check-|Retries|ForceIPv4|ForceIPv6)", re.IGNORECASE)
PUBLIC_ARCHIVE = ("deb.debian.org", "security.debian.org", "ftp.debian.org")


def settings() -> str:
    """This machine's settings of apt for proxies, certificates and checks; empty without apt."""
    if shutil.which("apt-config") is None:
        return ""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True).stdout
    kept = [line for line in dump.splitlines() if KEYS.match(line) and not line.endswith('"";')]
    # A build can't read local files, such as a client certificate.
    return "".join(f"{line}\n" for line in kept if '"/' not in line)


def auth() -> str:
    """Passwords for archives, from the files that this user may read."""
    files = [_place("netrc/f", "/etc/apt/auth.conf")]
    files += sorted(_place("netrcparts/d", "/etc/apt/auth.conf.d").glob("*.conf"))
    return "".join(text if text.endswith("\n") else f"{text}\n" for _, text in _readable(files))


def source_files() -> list[tuple[str, str]]:
    """The names and texts of this machine's source lists."""
    folder = _place("sourceparts/d", "/etc/apt/sources.list.d")
    main = _place("sourcelist/f", "/etc/apt/sources.list")
    return _readable([main, *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))])


def _place(name: str, default: str) -> Path:
    """The path of one of apt's files, which its settings may change."""
    if shutil.which("apt-config") is None:
        return Path(default)
    printed = subprocess.run(
        ["apt-config", "shell", "place", f"Dir::Etc::{name}"], capture_output=True, text=True
    ).stdout
    words = shlex.split(printed.partition("=")[2])
    return Path(words[0] if words else default)


def _readable(files: Sequence[Path]) -> list[tuple[str, str]]:
    return [(file.name, file.read_text()) for file in files if file.is_file() and os.access(file, os.R_OK)]


def private_sources(files: Sequence[tuple[str, str]], suite: str = "bookworm") -> str:
    """This machine's sources for the base's suite, as one-line entries, if one of them is a mirror; else empty.

    Entries of other suites are skipped because their packages would not fit the base. So are entries with another key
    than Debian's, such as Docker's archive: the base has only Debian's key.
    """
    entries: list[str] = []
    for name, text in files:
        entries += _deb822_entries(text) if name.endswith(".sources") else _line_entries(text)
    fitting = [entry for entry in entries if _fits(entry, suite)]
    if all(urlsplit(entry.split()[1]).hostname in PUBLIC_ARCHIVE for entry in fitting):
        return ""
    return "".join(f"{entry}\n" for entry in fitting)


def _fits(entry: str, suite: str) -> bool:
    _, uri, name, *components = entry.split()
    remote = uri.startswith(("http://", "https://"))  # a build can't read file: or mirror+file:
    return remote and re.split("[-/]", name)[0] == suite and "main" in components


def _debians_key(signed_by: str) -> bool:
    return not signed_by or "debian-archive" in signed_by


def _line_entries(text: str) -> list[str]:
    entries = []
    for line in text.splitlines():
        options = re.search(r"\[([^]]*)\]", line)
        plain = re.sub(r"\[[^]]*\]\s*", "", line.strip())
        key = re.search(r"signed-by=(\S+)", options[1]) if options else None
        if plain.startswith("deb ") and len(plain.split()) >= 4 and _debians_key(key[1] if key else ""):
            entries.append(plain)
    return entries


def _deb822_entries(text: str) -> list[str]:
    entries = []
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t].*)*)$", paragraph, flags=re.MULTILINE))
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled", "yes").lower() == "no":
            continue
        if not _debians_key(fields.get("Signed-By", "")):
            continue
        for uri in fields.get("URIs", "").split():
            for suite in fields.get("Suites", "").split():
                entries.append(" ".join(["deb", uri, suite, *fields.get("Components", "").split()]))
    return [entry for entry in entries if len(entry.split()) >= 4]
