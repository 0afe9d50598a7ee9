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
    if names := _packages(raised.message):
        return add_lines(names)
    if system := next((each for each in _COMMAND.finditer(raised.message) if each["tool"] in _SYSTEM_TOOLS), None):
        return (
            f"; {_words(system)[0]} is a system package, which a job can't install: build your own image FROM this one "
            "with it"
        )
    return ""


def _packages(message: str) -> list[str]:
    """The requirements of the first `pip install` in a message."""
    match = next((each for each in _COMMAND.finditer(message) if each["tool"] not in _SYSTEM_TOOLS), None)
    return _words(match) if match else []


def _words(command: re.Match[str]) -> list[str]:
    """The packages of an install command. Without backticks only the first, because text may follow."""
    text = command["words"] if command["open"] else command["words"].removesuffix(command["more"])
    words = [word.strip(_QUOTES).rstrip(".,;") for word in text.split()]
    return [word for word in words if word and not word.startswith("-")]
