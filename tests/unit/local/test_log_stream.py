"""Lines from the chunks of an engine's log, and the last error among them."""

import pytest

from berth.local.log_stream import ErrorLines, lines


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([b"a\nb\n"], ["a", "b"], id="two-lines"),
        pytest.param([b"a", b"b\nc"], ["ab", "c"], id="cut-anywhere"),
        pytest.param(["für".encode()[:2], "für".encode()[2:], b"\r\n"], ["für"], id="cut-in-a-character"),
        pytest.param([b"\xff\n"], ["\ufffd"], id="not-utf-8"),
        pytest.param([b"\n\n"], ["", ""], id="empty-lines"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_lines_joins_chunks_that_end_anywhere(chunks: list[bytes], expected: list[str]) -> None:
    assert list(lines(chunks)) == expected


def test_error_lines_keeps_the_last_error() -> None:
    printed: list[str] = []
    sink = ErrorLines(printed.append)
    log = ["berth: loading", "berth: error: no config", "berth: error: no weights", "{}"]
    for line in log:
        sink(line)
    assert printed == log
    assert sink.last_error == "no weights"
