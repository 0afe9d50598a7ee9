"""Expensive request bodies: as large, with as many parts, or as hard to tokenize as a server's limits allow.

A body repeats one part: a value, key, bracket, line, row, or letters of a text. It fills the limit of bytes, exceeds it
by one byte, or fills the limit of records or of characters in questions and contexts.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from berth.serve.limits import RequestLimits
from berth.serve.questions.codecs import CSV, JSON, JSON_LINES

_LETTERS = (
    *("a ", "a", "word ", f"{'0' * 370} ", "日", "日 ", "é", "e\u0301", "\u0301", "🙂", "\x01", "\ud800", " ", "\t"),
    *('"', ", ", "don't ", "1,000.50 ", "\u200d", "ﷺ", "สวัสดี"),
)
"""Texts with one, no or many tokens per letter, and an endless word."""
_VALUES = (
    *("0", "1.5e-7", "9" * 4000, "null", '""', '"é"', r'"\ud83d\ude42"', r'"\u0000"', "[]", "[0]", "{}", '{"a":0}'),
    *('{"":{}}', "[[[[[]]]]]", '{"question":"a","context":"b"}', '{"inputs":{"question":"a","context":"b"}}', "NaN"),
)
_LINES = ("", " ", "x", "1", "{", '"', "{}", "[]", "\ufeff", '{"a":0,"b":0,"c":0}', '{"question":"a","context":"b"}')
_ROWS = (
    *("", " ", "x", "a,b", ",", '""', '"",""', 'a,"b', 'a,"b"c', 'a","""', '"', '"""', "a,b,c", "question,context"),
    *("\r", "a,\x00", '"a\nb",c', "ab," * 500),
)
_NESTED = ("[", "{", '{"a":', "[[],", '[{"a":', '{"inputs":', '{"inputs":[')


@dataclass(frozen=True, slots=True)
class CostlyBody:
    """A body and its description. pause: seconds to wait after its answer, because its worker stays busy."""

    content_type: str
    name: str
    data: bytes
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """What a body may fill: `size` in bytes, and the server's other limits."""

    size: int
    limits: RequestLimits


def draw(content_type: str, room: Room, number: int) -> CostlyBody:
    """A body of a content type, the same for the same `number`."""
    chance = Random(f"{content_type} {number}")
    name, data = chance.choice(_MAKERS[content_type])(chance, room)
    return CostlyBody(content_type, f"{name} ({len(data)} bytes)", data)


def filled(part: str, size: int, begin: str = "", end: str = "", filler: str = " ") -> bytes:
    """Exactly `size` bytes: the part repeated, and the filler for the rest."""
    one, first, last = (each.encode("utf-8", "backslashreplace") for each in (part, begin, end))
    data = first + one * ((size - len(first) - len(last)) // max(1, len(one))) + last
    return data + filler.encode() * (size - len(data))


def _size(chance: Random, room: Room) -> int:
    return room.size + chance.choice((0, 0, 1))


def _values(chance: Random, room: Room) -> tuple[str, bytes]:
    value = chance.choice(_VALUES)
    begin, end = chance.choice((("[", "0]"), ('{"inputs":[', "0]}"), ('{"inputs":{"question":"a","context":[', "0]}}")))
    return f"list of {value[:20]}", filled(f"{value},", _size(chance, room), begin, end)


def _keys(chance: Random, room: Room) -> tuple[str, bytes]:
    value = chance.choice(_VALUES)[:40]
    if chance.random() < 0.3:
        return f"one key with {value[:20]}", filled(f'"a":{value},', _size(chance, room), "{", '"a":0}')
    if chance.random() < 0.3:
        return "a long key", filled(chance.choice("aé🙂"), _size(chance, room), '{"', '":0}')
    size, keys, number = _size(chance, room), [], 0
    while size > 0:
        keys.append(f'"{number}":{value},')
        size, number = size - len(keys[-1].encode()), number + 1
    return f"keys with {value[:20]}", ("{" + "".join(keys)).encode()[: room.size - 1] + b"}"


def _brackets(chance: Random, room: Room) -> tuple[str, bytes]:
    part = chance.choice(_NESTED)
    depth = chance.choice((50, 500, 900, room.size))
    size = min(_size(chance, room), depth * len(part))
    return f"{depth} of {part}", filled(part, size)


def _text(chance: Random, characters: int) -> tuple[str, str]:
    letters = "".join(chance.choices(_LETTERS, k=chance.choice((1, 1, 1, 2, 3))))
    return letters[:10], (letters * (characters // len(letters) + 1))[:characters]


def _questions(chance: Random, room: Room) -> tuple[str, bytes]:
    """Many questions, characters or bytes, with expensive parameters."""
    most = room.limits.tokens // room.limits.window_tokens
    count = chance.choice((1, 1, 2, 30, 300, most, most + 1))
    letters, text = _text(chance, max(2, chance.choice((room.limits.characters, room.size)) // count - 1))
    question, context = ("a", text) if chance.random() < 0.8 else (text, "a")
    one = {"question": question, "context": context}
    parameters = {
        "top_k": chance.choice((1, 5, 100, 1000)),
        "max_answer_len": chance.choice((1, 15, 384)),
        "align_to_words": chance.random() < 0.5,
    }
    if chance.random() < 0.3:
        parameters |= {"max_seq_len": chance.choice((8, 32, 64)), "doc_stride": chance.choice((0, 1, 4))}
    body = json.dumps({"inputs": [one] * count, "parameters": parameters}, ensure_ascii=chance.random() < 0.5)
    data = body.encode("utf-8", "backslashreplace")
    return f"{count} questions of {letters!r}, {parameters}", data[: room.size + 1]


def _many_lines(parts: Sequence[str]) -> Callable[[Random, Room], tuple[str, bytes]]:
    """Lines or rows of one or two parts that fill the limit of bytes or of records."""

    def make(chance: Random, room: Room) -> tuple[str, bytes]:
        part = "".join(f"{each}\n" for each in chance.choices(parts, k=chance.choice((1, 1, 2))))
        begin = chance.choice(("", "", "question,context\n", '"'))
        if chance.random() < 0.7:
            return f"lines of {part[:30]!r}", filled(part, _size(chance, room), begin, filler="\n")
        count = (room.limits.records + chance.choice((0, 1))) // part.count("\n")
        return f"{count} lines of {part[:30]!r}", (begin + part * count).encode()[: room.size + 1]

    return make


def _records(content_type: str) -> Callable[[Random, Room], tuple[str, bytes]]:
    """Valid records that fill the limit of records and of characters."""

    def make(chance: Random, room: Room) -> tuple[str, bytes]:
        count = chance.choice((1, 2, 16, 200, room.limits.records))
        characters = chance.choice((room.limits.body_characters, room.size)) // count - 1
        letters, text = _text(chance, min(max(2, characters), room.limits.characters - 1))
        one = {"question": "a", "context": text, "parameters": {"top_k": chance.choice((1, 20, 1000))}}
        if content_type == JSON_LINES:
            line = json.dumps(one, ensure_ascii=chance.random() < 0.5)
        else:
            line = 'a,"{}"'.format(text.replace('"', '""'))
        data = f"{line}\n".encode("utf-8", "backslashreplace")
        return f"{count} records of {letters!r}", (data * count)[: room.size + 1]

    return make


def _one_line(content_type: str) -> Callable[[Random, Room], tuple[str, bytes]]:
    """One line or row with many parts."""
    parts = _VALUES if content_type == JSON_LINES else ("", "a", "ab", '""', '"a"', '"', 'a"', "\x00", "é")

    def make(chance: Random, room: Room) -> tuple[str, bytes]:
        part, begin = chance.choice(parts), chance.choice(("", "[", '"', "question,"))
        return f"one line of {part[:20]!r}", filled(f"{part},", _size(chance, room), begin)

    return make


_MAKERS = {
    JSON: (_values, _keys, _brackets, _questions, _questions),
    JSON_LINES: (
        _many_lines(_LINES),
        _many_lines(_VALUES),
        _records(JSON_LINES),
        _records(JSON_LINES),
        _one_line(JSON_LINES),
    ),
    CSV: (_many_lines(_ROWS), _many_lines(_ROWS), _records(CSV), _records(CSV), _one_line(CSV)),
}
