"""The text of docker/pins.toml with a profile more or less; all else stays as it is, comments included. Pure.

A row is appended, or removed table by table; what the text then says is compared with what it should, so that a form of
TOML that this does not know is a sentence, and never a broken file.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from berth.common.errors import UserError

Tables = Mapping[str, Mapping[str, Any]]
"""Tables by their whole names, such as software.mine.environment, each key → a text, a number or a list of texts."""


def appended(text: str, tables: Tables) -> str:
    """The text with these tables behind all others, an empty line before each; UserError where that can't be."""
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
    """The text without these tables (profiles.mine) and those below them (profiles.mine.budget), each with the comments
    that lie right above it; UserError where that can't be.
    """
    wanted = _parsed(text)
    for name in names:
        group, _, key = name.partition(".")
        del wanted[group][key]
    kept = [block for header, block in _blocks(text) if not any(_is_in(header, name) for name in names)]
    new = re.sub(r"\n{3,}", "\n\n", "".join(kept)).strip("\n") + "\n"
    _compare(new, wanted, "taken out of")
    return new


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each table's name and lines, from its comment on; what lies before the first has no name."""
    header, lines = "", list[str]()
    for line in text.splitlines(keepends=True):
        if found := re.match(r"\s*\[{1,2}\s*([^\]]+?)\s*\]", line):
            place = _comment_above(lines)
            yield header, "".join(lines[:place])
            header, lines = found[1], lines[place:]
        lines.append(line)
    yield header, "".join(lines)


def _comment_above(lines: Sequence[str]) -> int:
    """Where the comments begin that end these lines, behind an empty one."""
    place = len(lines)
    while place and (lines[place - 1].startswith("#") or not lines[place - 1].strip()):
        place -= 1
    while place < len(lines) and lines[place].startswith("#"):  # these stand below the table's last key
        place += 1
    return place


def _is_in(header: str, name: str) -> bool:
    plain = re.sub(r"[\"'\s]", "", header)
    return plain == name or plain.startswith(f"{name}.")


def _table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}\n" for key, value in values.items()]
    return f"[{name}]\n{''.join(lines)}"


def _value(value: Any) -> str:
    """As JSON, whose texts, numbers and lists are TOML's as well."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


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
        raise UserError(f"The row can't be {what} docker/pins.toml as it is written there: edit it by hand.")
