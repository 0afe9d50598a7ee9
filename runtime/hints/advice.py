"""Advice of other libraries, which their exceptions carry: what can't be followed inside a job is cut from the message,
and a `pip install` becomes the line for requirements.txt.
"""

import re

from berth.runtime.hints.missing_modules import add_lines
from berth.runtime.hints.program import ProgramContext, RaisedException

_COMMAND = re.compile(
    r"(?P<open>`*)\s*(?:!|sudo )?(?:python3? -m )?(?P<tool>pip3?|conda|mamba|apt|apt-get|brew|yum|uv pip)\s+install\s+"
    r"(?P<words>(?:-[\w-]+(?:=\S+)?\s+)*(?:[\"'][^\"']+[\"']|[^\s`'\")]+)(?P<more>[^`]*))"
)
_QUOTES = "`'\" "
# A sentence that is nothing but advice, and how advice within a sentence is joined to it.
_ADVICE = re.compile(
    r"^[-*`\s\d.]*(?:please|you can|you may|you could|install|run|try|upgrade|update|use|to do so|to install|"
    r"in a notebook|in order to get it|it can be|or |can install|see |check|!?pip )",
    re.IGNORECASE,
)
_JOINED = re.compile(
    r"\s*(?:[;:(,]|=>|\band\b|\bor\b|\bplease\b)\s*(?:(?:please|you can|you may|or|either|run|use|try|e\.g\.|"
    r"(?:re)?install(?:ed)?(?: \w+)?(?: (?:it|them))?|do so|get it|update|upgrade)\s*,?\s*)*(?:with|via|by|using|"
    r"through|running|from)?:?[`'\"\s]*$",
    re.IGNORECASE,
)
# Sentences without a command that make no sense in a job: there is no runtime to restart and nothing to look up to.
_USELESS = re.compile(
    r"restart(?:ing)? your (?:runtime|kernel)|in a notebook or a colab|to install it|installation page|"
    r"follow the (?:ones|instructions)|Compile with `TORCH_USE_CUDA_DSA`",
    re.IGNORECASE,
)
_LOOK_UP = re.compile(r"\s*\(look up to see its traceback\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\s*```\s*|\s(?=Compile with `TORCH_)")
_SYSTEM_TOOLS = ("apt", "apt-get", "brew", "yum")


def without_advice(message: str) -> str:
    """An exception's message, on one line, without the advice in it that can't be followed inside a job."""
    message = _LOOK_UP.sub("", message)
    if not _COMMAND.search(message) and not _USELESS.search(message):
        return message
    kept = [part for sentence in _SENTENCE_END.split(message) if (part := _kept(sentence))]
    if kept:
        return " ".join(kept)
    names = " and ".join(_packages(message))
    return f"{names} is not installed" if names else message


def _kept(sentence: str) -> str:
    """What is left of a sentence; "" for one that is advice alone."""
    if _USELESS.search(sentence):
        return ""
    match = _COMMAND.search(sentence)
    if match is None:
        return sentence
    before = sentence[: match.start()].rstrip("`'\"! ")
    if not before.strip() or _ADVICE.match(before):
        return ""
    joined = _JOINED.search(before)
    return before[: joined.start()].rstrip(" ,;:(") if joined else before.rstrip(" ,;:(")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The line of requirements.txt that does what the message advises; "" if it advises no installation."""
    del context
    if names := _packages(raised.message):
        return add_lines(names)
    if system := next((each for each in _COMMAND.finditer(raised.message) if each["tool"] in _SYSTEM_TOOLS), None):
        return (
            f"; {_words(system)[0]} is a system package, which a job can't install: build an image of yours FROM this "
            "one that has it"
        )
    return ""


def _packages(message: str) -> list[str]:
    """The requirements of the first `pip install` in a message."""
    match = next((each for each in _COMMAND.finditer(message) if each["tool"] not in _SYSTEM_TOOLS), None)
    return _words(match) if match else []


def _words(command: re.Match[str]) -> list[str]:
    """What a command installs. Without backticks only the first: text may follow."""
    text = command["words"] if command["open"] else command["words"].removesuffix(command["more"])
    words = [word.strip(_QUOTES).rstrip(".,;") for word in text.split()]
    return [word for word in words if word and not word.startswith("-")]
