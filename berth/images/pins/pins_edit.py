"""Adds or removes a profile in the text of docker/pins.toml and keeps everything else, comments included. Pure.

The new text is parsed and compared with the expected contents, so TOML that this module can't edit gives an error,
never a broken file.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from berth.common.errors import UserError

Tables = Mapping[str, Mapping[str, Any]]
"""Tables by full name, such as software.mine.environment; values are texts, numbers or lists of texts."""


def appended(text: str, tables: Tables) -> str:
    """The text with these tables at the end, an empty line before each; UserError if that is impossible."""
    added = "".join(f"\n{_table(name, values)}" for name, values in tables.items())
    new = f"{text.rstrip()}\n{added}"
    wanted = _parsed(text)
    for name, values in tables.items():
        *above, last = name.split(".", 2)
        place = wanted
        for word in above:
            place = place.setdefault(word, {})
        if last in place:
            raise UserError(f"docker/pins.toml has a table [{name}] already: choose another name.")
        place[last] = dict(values)
    _compare(new, wanted, "added to")
    return new


def without(text: str, names: Sequence[str]) -> str:
    """The text without these tables (profiles.mine), their subtables (profiles.mine.budget) and the comments directly
    above each; UserError if that is impossible.
    """
    wanted = _parsed(text)
    for name in names:
        group, _, key = name.partition(".")
        del wanted[group][key]
    kept = [block for header, block in _blocks(text) if not any(_is_in(header, name) for name in names)]
    new = re.sub(r"\n{3,}", "\n\n", "".join(kept)).strip("\n") + "\n"
    _compare(new, wanted, "removed from")
    return new


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each table's name and lines, including the comment above it; the lines before the first table have no name."""
    header, lines = "", list[str]()
    for line in text.splitlines(keepends=True):
        if found := re.match(r"\s*\[{1,2}\s*([^\]]+?)\s*\]", line):
            place = _comment_above(lines)
            yield header, "".join(lines[:place])
            header, lines = found[1], lines[place:]
        lines.append(line)
    yield header, "".join(lines)


def _comment_above(lines: Sequence[str]) -> int:
    """The index at which the comment at the end of these lines begins, after an empty line."""
    place = len(lines)
    while place and (lines[place - 1].startswith("#") or not lines[place - 1].strip()):
        place -= 1
    while place < len(lines) and lines[place].startswith("#"):  # these belong to the table's last key
        place += 1
    return place


def _is_in(header: str, name: str) -> bool:
    plain = re.sub(r"[\"'\s]", "", header)
    return plain == name or plain.startswith(f"{name}.")


def _table(name: str, values: Mapping[str, Any]) -> str:
    """A table of TOML. JSON's texts, numbers and lists are valid TOML, but for the character DEL."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items()]
    return f"[{name}]\n{''.join(lines)}".replace("\x7f", "\\u007f")


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"docker/pins.toml can't be read ({error}): fix it, or restore it from the repository."
        ) from None


def _compare(new: str, wanted: Mapping[str, Any], what: str) -> None:
    try:
        same = tomllib.loads(new) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise UserError(f"The profile can't be {what} docker/pins.toml automatically: edit the file by hand.")
