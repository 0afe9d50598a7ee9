"""Walks JSON of any size from its start to its end, with no more of it in memory than the value at hand.

stream = JsonStream(chunks)          # of text, of any length
for name in stream.members():        # of an object; each must be read
    for _ in stream.items():         # of a list; each must be read
        content = stream.value()     # all of it at once
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

TOO_MANY_DIGITS = "a number has too many digits"
"""What Python takes of a whole number is 4300 of them (sys.set_int_max_str_digits): else a ValueError of int's own."""
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_UNCERTAIN = 16
"""So close to the end of what is there, a fault may be none once more is (half a word, half an escape), and a number
may be longer.
"""


class JsonError(ValueError):
    """The text is no JSON: what is wrong, and at which line and column, from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class JsonStream:
    """A place in a JSON text. Raises JsonError where the text is none."""

    def __init__(self, chunks: Iterable[str]) -> None:
        self._chunks = iter(chunks)
        self._text = ""
        self._at = 0
        self._ended = False
        self._keeps = True
        self._line = 1
        self._column = 1

    def peek(self) -> str:
        """The first character of what comes next, empty at the end of the text."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def value(self) -> Any:
        """The value that comes next."""
        while True:
            self.peek()
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated") or error.pos >= len(self._text) - _UNCERTAIN
                if cut_off and self._more():
                    continue
                raise self.error(error.msg, error.pos) from None
            except ValueError:
                raise self.error(TOO_MANY_DIGITS) from None
            if isinstance(value, int | float) and end > len(self._text) - _UNCERTAIN and self._more():
                continue  # a number may go on
            self._at = end
            return value

    def members(self) -> Iterator[str]:
        """The names of the object that comes next, each to be followed by a call that reads its value."""
        self._take("{", "Expecting '{'")
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            if self.peek() != '"':
                raise self.error("Expecting property name enclosed in double quotes")
            name = self.value()
            self._take(":", "Expecting ':' delimiter")
            yield name
            if self.peek() != ",":
                break
            self._at += 1
        self._take("}", "Expecting ',' delimiter")

    def items(self) -> Iterator[None]:
        """Once for each item of the list that comes next, to be followed by a call that reads it."""
        self._take("[", "Expecting '['")
        if self.peek() == "]":
            self._at += 1
            return
        while True:
            yield
            if self.peek() != ",":
                break
            self._at += 1
        self._take("]", "Expecting ',' delimiter")

    def let_go(self) -> None:
        """What has been read is needed no more: from here on `from_start` is no longer to be had."""
        self._keeps = False

    def from_start(self) -> Iterator[str]:
        """The whole text once more, in chunks; nothing comes after it."""
        text, self._text, self._at = self._text, "", 0
        yield text
        yield from self._chunks

    def error(self, message: str, at: int | None = None) -> JsonError:
        """The error for what stands at this place."""
        at = self._at if at is None else at
        line = self._line + self._text.count("\n", 0, at)
        last = self._text.rfind("\n", 0, at)
        return JsonError(message, line, self._column + at if last < 0 else at - last)

    def _take(self, character: str, message: str) -> None:
        if self.peek() != character:
            raise self.error(message)
        self._at += 1

    def _more(self) -> bool:
        """Read on, at least as much as is there, so that a long value is not tried too often; False at the end."""
        added: list[str] = []
        size = 0
        while not self._ended and size <= len(self._text) - self._at:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._ended = True
            else:
                added.append(chunk)
                size += len(chunk)
        if not size:
            return False
        if not self._keeps:
            last = self._text.rfind("\n", 0, self._at)
            self._line += self._text.count("\n", 0, self._at)
            self._column = self._column + self._at if last < 0 else self._at - last
            self._text, self._at = self._text[self._at :], 0
        self._text += "".join(added)
        return True
