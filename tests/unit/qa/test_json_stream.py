"""JSON walked piece by piece gives what the standard library makes of it at once, faults and their places too."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from berth.qa.json_stream import JsonError, JsonStream

SIZES = [1, 2, 3, 7, 1000]


def pieces(text: str, size: int) -> Iterator[str]:
    return (text[first : first + size] for first in range(0, len(text), size))


def walked(stream: JsonStream) -> Any:
    """The value that comes next: objects and lists by their parts, anything else at once."""
    match stream.peek():
        case "{":
            return {name: walked(stream) for name in stream.members()}
        case "[":
            return [walked(stream) for _ in stream.items()]
        case _:
            return stream.value()


VALUES = [
    {},
    [],
    [[], {}, [[]]],
    {"a": [1, -2.5e-7, 12345678901234567890, True, False, None, ""], "b": {"c": {}}},
    ['quotes " and \\ and / and \u2028', "\U0001f469\u200d\U0001f4bb", "\u0000\n\t", "ends in \\"],
    {"data": [{"paragraphs": [{"context": "x" * 3000, "qas": [{"id": "1"}]}]}] * 3, "version": "2.0"},
    123,
    "text",
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
@pytest.mark.parametrize("layout", [{}, {"indent": 1}, {"ensure_ascii": False}, {"separators": (",", ":")}])
def test_parts_and_wholes_are_what_the_standard_library_reads(layout: Any, value: Any, size: int) -> None:
    text = json.dumps(value, **layout)
    assert walked(stream := JsonStream(pieces(f" {text}\n", size))) == value
    assert stream.peek() == ""
    assert JsonStream(pieces(text, size)).value() == value


FAULTS = [
    "",
    "[",
    '{"a": [1, 2',
    '{"a" 1}',
    '{"a": 1,}',
    '{"a": 1 "b": 2}',
    "[1 2]",
    "[1,]",
    '[\n\n  {"a": tru}]',
    '["x\ny"]',
    '["\\x"]',
    '["\\u12g4"]',
    '{"a": "no end}',
    "{1: 2}",
    '[{"a": 1}\n, oops]',
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("text", FAULTS)
def test_a_fault_has_its_line_and_column(text: str, size: int) -> None:
    with pytest.raises(json.JSONDecodeError) as theirs:
        json.loads(text)
    with pytest.raises(JsonError) as ours:
        walked(JsonStream(pieces(text, size)))
    # A comma too many: at the comma or behind it, as the versions of the standard library differ, too.
    assert ours.value.line == theirs.value.lineno
    assert abs(ours.value.column - theirs.value.colno) <= (1 if ",]" in text or ",}" in text else 0)


def test_a_fault_behind_what_was_let_go_has_its_line_and_column() -> None:
    text = '{"data": [\n' + '{"a": 1},\n' * 500 + "  oops]}"
    stream = JsonStream(pieces(text, 64))
    assert stream.peek() == "{"
    stream.let_go()
    with pytest.raises(JsonError) as found:
        walked(stream)
    assert (found.value.line, found.value.column) == (502, 3)


def test_no_more_than_a_part_is_in_memory() -> None:
    held = 0
    stream = JsonStream(pieces(json.dumps([{"a": "x" * 100}] * 5000), 1000))
    stream.let_go()
    for _ in stream.items():
        stream.value()
        held = max(held, len(stream._text))
    assert held < 3000


def test_the_text_can_be_had_again_until_it_is_let_go() -> None:
    text = '{"a": 1}\n{"b": 2}\n'
    stream = JsonStream(pieces(text, 5))
    assert walked(stream) == {"a": 1}
    assert stream.peek() == "{"
    assert "".join(stream.from_start()) == text
    assert stream.peek() == ""
