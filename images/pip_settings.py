"""pip's settings of this machine, read without pip: Debian's own Python has none.

The Makefile runs this file by itself, before anything is installed, so it imports the standard library only.
"""

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

FILES = ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")


def of_files(environ: Mapping[str, str]) -> dict[str, str]:
    """What pip's files say, by the names that they use, such as index-url; the last file that sets one decides."""
    files = [environ["PIP_CONFIG_FILE"]] if environ.get("PIP_CONFIG_FILE") else list(FILES)
    parser = configparser.RawConfigParser(strict=False)
    parser.read([Path(file).expanduser() for file in files])
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return found


def of_machine(environ: Mapping[str, str]) -> dict[str, str]:
    """The same with pip's variables before its files."""
    variables = {name[4:].lower().replace("_", "-"): value for name, value in environ.items() if name[:4] == "PIP_"}
    return of_files(environ) | {name: value for name, value in variables.items() if value}


def for_make(settings: Mapping[str, str]) -> str:
    """NAME=VALUE of what uv has to know, words of make: the parts of a value are separated by commas, not spaces."""
    needed = ("index-url", "cert", "find-links")
    return " ".join(f"{name}={','.join(settings[name].split())}" for name in needed if settings.get(name, "").split())


if __name__ == "__main__":
    print(for_make(of_machine(os.environ)))
