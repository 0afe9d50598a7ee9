"""Advice in exceptions of other libraries: a `pip install` becomes a line for requirements.txt."""

import re

from berth.runtime.hints.missing_modules import add_lines
from berth.runtime.hints.program import ProgramContext, RaisedException

_COMMAND = re.compile(
    r"(?P<open>`*)\s*(?:!|sudo )?(?:python3? -m )?(?P<tool>pip3?|conda|mamba|apt|apt-get|brew|yum|uv pip)\s+install\s+"
    r"(?P<words>(?:-[\w-]+(?:=\S+)?\s+)*(?:[\"'][^\"']+[\"']|[^\s`'\")]+)(?P<more>[^`]*))"
)
_QUOTES = "`'\" "
_SYSTEM_TOOLS = ("apt", "apt-get", "brew", "yum")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The line for requirements.txt that follows the message's advice; "" if it advises no installation."""
    del context
    commands = list(_COMMAND.finditer(raised.message))
    if packages := next((_words(each) for each in commands if each["tool"] not in _SYSTEM_TOOLS), []):
        return add_lines(packages)
    if system := next((_words(each) for each in commands if each["tool"] in _SYSTEM_TOOLS), []):
        return (
            f"; {system[0]} is a system package, which a job can't install: build your own image FROM this one with it"
        )
    return ""


def _words(command: re.Match[str]) -> list[str]:
    """The packages of an install command. Without backticks only the first, because text may follow."""
    text = command["words"] if command["open"] else command["words"].removesuffix(command["more"])
    words = [word.strip(_QUOTES).rstrip(".,;") for word in text.split()]
    return [word for word in words if word and not word.startswith("-")]
