"""Hides secrets in logs: a value is replaced by stars if its name sounds secret.

`masked` takes a command line, `shown` one named value, `mask_text` a line of any program's output. The words of a name
decide: `hub_token`, `--api-keys` and `dbPass` sound secret, `tokenizer_name` and `author` do not.
"""

import re
from collections.abc import Sequence

STARS = "***"
# A name with one of these words sounds secret.
_SECRET_WORD = re.compile(
    r"(?:auth|authorization|authentication|bearer|cookie|cred|dsn|jwt|key|passcode|passphrase|pwd|sas|sig|signature|"
    r"webhook)s?"
    # Some names are written as one word (hftoken, dbpassword).
    r"|\w*(?:token|secret|password|passwd|credential|apikey|accesskey|authkey|dbpwd)s?"
)
_TOKEN = re.compile(r"tokens?")
# Next to one of these words, `token` means a piece of text (max_tokens, pad_token), which is not secret.
_TEXT_TOKEN_WORDS = re.compile(
    r"added|additional|batch|bos|cls|count|decoder|encoder|eos|ids?|image|length|limit|mask|max|min|n|new|num|number|pad|"
    r"per|prediction|sep|sequence|size|special|start|stop|target|types?|unk|vocab"
)
_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Possessive, and only at the start of a name: otherwise the time is quadratic in the length of a word.
_NAME_BEFORE_VALUE = re.compile(r"(?<![\w-])([\w-]++)[\"']?\s*+[=:]")
# Up to the last @ before the path, because a password may contain @, or (against RFC 3986, 3.2.1) a slash.
_USER = re.compile(r"(?<=://)(?:[^/?#\s\"']*@|[^/?#\s\"':@]+:(?!\d+/)[^\s\"'@]{0,1000}@)")
_BEARER = re.compile(r"\b(bearer|authorization\W+basic)\s+[\w.~+/-]{8,}=*", re.IGNORECASE)
# `name=value` and `"name": "value"`. Before a colon the name must be quoted: prose has colons too ("KeyError: 'a'").
_IN_TEXT = re.compile(
    r"(?<![\w-])(?P<name>[\w-]++)(?:=|[\"']\s*:\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s&,;'\"(){}\[\]]+)"
)


def sounds_secret(name: str) -> bool:
    """Whether a value of this name must be hidden."""
    words = [word.rstrip("0123456789").lower() for word in _WORDS.split(name)]
    words = [word for word in words if word]
    if any(map(_TEXT_TOKEN_WORDS.fullmatch, words)):
        words = [word for word in words if not _TOKEN.fullmatch(word)]
    # `pass` counts only as the last word: db_pass is a secret, pass_through is a verb.
    return any(map(_SECRET_WORD.fullmatch, words)) or words[-1:] == ["pass"]


def shown(name: str, value: str) -> str:
    """A value for a log: stars if its name sounds secret.

    A value that contains a secret (`API_KEY=abc`, `{'token': 'abc'}`, `?sig=abc`) is cut there; the user and password
    of a URL are replaced by stars.
    """
    if sounds_secret(name):
        return STARS
    value = _USER.sub(f"{STARS}@", value)
    if name in ("-x", "--x"):  # mpirun exports a variable, which may be anything
        variable, equals, _ = value.partition("=")
        return f"{variable}={STARS}" if equals else value
    first = next((match for match in _NAME_BEFORE_VALUE.finditer(value) if sounds_secret(match[1])), None)
    return value if first is None else value[: first.end()] + STARS


def masked(command: Sequence[str]) -> list[str]:
    """The command line with secret values replaced."""
    names = ["", *(argument if argument.startswith("-") else "" for argument in command[:-1])]
    return [shown(name, argument) for name, argument in zip(names, command, strict=True)]


def mask_text(text: str) -> str:
    """Text of any program (pip, mpirun, an exception) without the secrets that can be recognised by their form."""

    def stars(match: re.Match[str]) -> str:
        if not sounds_secret(match["name"]):
            return match[0]
        return match[0][: match.start("value") - match.start()] + STARS

    text = _USER.sub(f"{STARS}@", text)
    return _IN_TEXT.sub(stars, _BEARER.sub(rf"\1 {STARS}", text))
