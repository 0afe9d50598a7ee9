"""What a log shows of values that may be secret: stars for what a name says is one, wherever it stands.

`masked` is for a command line, `shown` for one value with its name, `mask_text` for a line of anybody's words. A name
is judged by its words: `hub_token`, `--api-keys` and `dbPass` sound secret, `tokenizer_name` and `author` do not.
"""

import re
from collections.abc import Sequence

STARS = "***"
# A word of a name that says enough, wherever in the name it stands.
_SECRET_WORD = re.compile(
    r"(?:auth|authorization|authentication|bearer|cookie|cred|dsn|jwt|key|passcode|passphrase|pwd|sas|sig|signature|"
    r"webhook)s?"
    # Names are written together as well (hftoken, dbpassword).
    r"|\w*(?:token|secret|password|passwd|credential|apikey|accesskey|authkey|dbpwd)s?"
)
_TOKEN = re.compile(r"tokens?")
# Next to one of these words a token is a piece of text, and the value a number of them or that text.
_OF_TEXT = re.compile(
    r"added|additional|batch|bos|cls|count|decoder|encoder|eos|ids?|image|length|limit|mask|max|min|n|new|num|number|pad|"
    r"per|prediction|sep|sequence|size|special|start|stop|target|types?|unk|vocab"
)
_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# A name is taken whole, and only from its first character: else a long word costs the square of its length.
_NAMED = re.compile(r"(?<![\w-])([\w-]++)[\"']?\s*+[=:]")
# Up to the last @ before the path: a password may hold one, or (against RFC 3986, 3.2.1) a slash after its colon.
_USER = re.compile(r"(?<=://)(?:[^/?#\s\"']*@|[^/?#\s\"':@]+:(?!\d+/)[^\s\"'@]{0,1000}@)")
_BEARER = re.compile(r"\b(bearer|authorization\W+basic)\s+[\w.~+/-]{8,}=*", re.IGNORECASE)
# `name=value` and `"name": "value"`; prose has colons too ("KeyError: 'a'"), so there the name must be in quotes.
_IN_TEXT = re.compile(
    r"(?<![\w-])(?P<name>[\w-]++)(?:=|[\"']\s*:\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s&,;'\"(){}\[\]]+)"
)


def sounds_secret(name: str) -> bool:
    """Whether what bears this name is not to be shown."""
    words = [word.rstrip("0123456789").lower() for word in _WORDS.split(name)]
    words = [word for word in words if word]
    if any(map(_OF_TEXT.fullmatch, words)):
        words = [word for word in words if not _TOKEN.fullmatch(word)]
    # `pass` as the last word only: db_pass is one, pass_through says what is done.
    return any(map(_SECRET_WORD.fullmatch, words)) or words[-1:] == ["pass"]


def shown(name: str, value: str) -> str:
    """A value for a log: stars where its name sounds secret, and from the first secret on that it holds itself
    (`API_KEY=abc`, `{'token': 'abc'}`, `?sig=abc`); no user information of an address.
    """
    if sounds_secret(name):
        return STARS
    value = _USER.sub(f"{STARS}@", value)
    if name in ("-x", "--x"):  # mpirun's: a variable for every rank, of which only its owner knows what it is
        variable, equals, _ = value.partition("=")
        return f"{variable}={STARS}" if equals else value
    first = next((match for match in _NAMED.finditer(value) if sounds_secret(match[1])), None)
    return value if first is None else value[: first.end()] + STARS


def masked(command: Sequence[str]) -> list[str]:
    """A command line with the values of arguments that sound secret replaced."""
    names = ["", *(argument if argument.startswith("-") else "" for argument in command[:-1])]
    return [shown(name, argument) for name, argument in zip(names, command, strict=True)]


def mask_text(text: str) -> str:
    """Anybody's words (pip's, mpirun's, an exception's) without the secrets that can be told by their shape."""

    def stars(match: re.Match[str]) -> str:
        if not sounds_secret(match["name"]):
            return match[0]
        return match[0][: match.start("value") - match.start()] + STARS

    text = _USER.sub(f"{STARS}@", text)
    return _IN_TEXT.sub(stars, _BEARER.sub(rf"\1 {STARS}", text))
