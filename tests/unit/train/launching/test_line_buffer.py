"""Splitting output into lines, and thinning out progress bars."""

import pytest

from berth.train.launching.line_buffer import LineBuffer

CASES = {
    "whole lines": ([(0, b"a\nb\n")], [b"a", b"b"], []),
    "line in pieces": ([(0, b"a"), (0, b"b\nc")], [b"ab"], [b"c"]),
    "empty line is kept": ([(0, b"a\n\nb\n")], [b"a", b"", b"b"], []),
    "CRLF": ([(0, b"a\r\nb\r\n")], [b"a", b"b"], []),
    "CRLF in two reads": ([(100, b"a\r"), (200, b"\nb\r\r"), (300, b"\n")], [b"a", b"b"], []),
    "bar that writes CR last": (
        [(100, b"1%\r"), (101, b"2%\r"), (111, b"3%\r"), (112, b"4%\r")],
        [b"1%", b"2%"],
        [b"4%"],
    ),
    "only the last rewrite is kept": ([(100, b"1%\r2%\r3%\n")], [b"3%"], []),
    "bar is shown every ten seconds": (
        [(100, b"\r1%\r2%"), (101, b"\r3%\r4%"), (111, b"\r5%\r6%")],
        [b"1%", b"5%"],
        [b"6%"],
    ),
}


@pytest.mark.parametrize(("fed", "lines", "end"), CASES.values(), ids=CASES.keys())
def test_feed_returns_complete_lines(fed: list[tuple[float, bytes]], lines: list[bytes], end: list[bytes]) -> None:
    buffer = LineBuffer()
    assert [line for now, data in fed for line in buffer.feed(data, now)] == lines
    assert buffer.end() == end


@pytest.mark.parametrize("character", ["x", "\u00e9", "\u2603", "\U0001f6a2"])
def test_long_line_is_cut_between_characters(character: str) -> None:
    buffer = LineBuffer()
    text = (character * 5_000_000).encode()
    cut = len(text) - 1
    lines = [*buffer.feed(text[:cut], 0), *buffer.feed(text[cut:], 0), *buffer.end()]
    assert len(lines) == 2
    assert b"".join(lines) == text
    assert all(line.decode() for line in lines)


def test_long_line_of_invalid_utf8_is_cut_anywhere() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b"\x80" * 5_000_000, 0) == [b"\x80" * 5_000_000]
