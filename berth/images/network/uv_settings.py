"""Reads uv's settings for package sources on this machine: its variables, then its files."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from berth.common.errors import UserError

Settings = dict[str, list[str]]


def read_uv_settings(environ: Mapping[str, str]) -> Settings:
    """The settings by pip's names: index-url, extra-index-url, find-links, trusted-host; empty lists if unset."""
    found: Settings = {
        "index-url": [_index_url(environ, environ.get("UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL", ""))],
        "extra-index-url": [
            _index_url(environ, word)
            for name in ("UV_INDEX", "UV_EXTRA_INDEX_URL")
            for word in environ.get(name, "").split()
        ],
        "find-links": environ.get("UV_FIND_LINKS", "").split(","),
        "trusted-host": environ.get("UV_INSECURE_HOST", "").split(),
    }
    for document in _documents(environ):
        for name, values in _settings(document, environ).items():
            found[name] += values
    return {name: list(dict.fromkeys(filter(None, values))) for name, values in found.items()}


def _index_url(environ: Mapping[str, str], index: str, name: str = "") -> str:
    """The URL of an index, which may be NAME=URL, with the login that variables have for its name, such as
    UV_INDEX_CORP_USERNAME for the index `corp`.
    """
    if named := re.match(r"([\w.-]+)=(?=\w+://)", index):
        name, index = named[1], index[named.end() :]
    words = re.sub(r"[^A-Z0-9]", "_", name.upper())
    user, password = (environ.get(f"UV_INDEX_{words}_{each}", "") for each in ("USERNAME", "PASSWORD"))
    return with_login(index, user, password) if name and (user or password) else index


def with_login(url: str, user: str, password: str) -> str:
    """The URL with this user and password, in place of its own."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{host}").geturl()


def _documents(environ: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The files that uv reads: the user's, then the system's; or only the one that UV_CONFIG_FILE names."""
    if environ.get("UV_NO_CONFIG"):
        return
    config = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config")
    system = [Path(each) for each in environ.get("XDG_CONFIG_DIRS", "").split(os.pathsep) if each]
    groups: Sequence[Sequence[Path]] = (
        [[Path(environ["UV_CONFIG_FILE"])]]
        if environ.get("UV_CONFIG_FILE")
        else [[config / "uv/uv.toml"], [each / "uv/uv.toml" for each in (*system, Path("/etc"))]]
    )
    for paths in groups:
        path = next((each for each in paths if each.is_file()), None)
        if path is None:
            continue
        try:
            yield tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"uv's settings in {path} can't be read ({error}): fix that file, or move it away."
            ) from None


def _settings(document: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """A file's settings. Those in [pip] win, because berth calls `uv pip`."""
    values = {**document, **document.get("pip", {})}
    tables = [each for each in document.get("index", []) if not each.get("explicit")]
    urls = [(_index_url(environ, each["url"], each.get("name", "")), each) for each in tables]
    return {
        "index-url": [*(url for url, each in urls if each.get("default")), values.get("index-url", "")],
        "extra-index-url": [
            *(url for url, each in urls if not each.get("default") and each.get("format") != "flat"),
            *values.get("extra-index-url", []),
        ],
        "find-links": [*(url for url, each in urls if each.get("format") == "flat"), *values.get("find-links", [])],
        "trusted-host": list(values.get("allow-insecure-host", [])),
    }
