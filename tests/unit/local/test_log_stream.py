"""Lines out of the pieces in which the engine sends a log, and the errors among them."""

import pytest

from berth.local.log_stream import lines


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
def test_lines_of_a_log(chunks: list[bytes], expected: list[str]) -> None:
    assert list(lines(chunks)) == expected
