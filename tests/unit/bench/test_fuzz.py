"""What counts as a fault of an answer, and how it is told."""

import json

import pytest

from bench.fuzz import RIGHT, FuzzFigures, fault_of, render


def body(kind: str) -> bytes:
    return json.dumps({"error": "x", "error_type": kind}).encode()


@pytest.mark.parametrize(
    ("status", "said", "fault"),
    [
        (200, b"anything", ""),
        (400, body("bad_request"), ""),
        (400, b"<html>", "400 without the one body of an error"),
        (404, b"[]", "404 without the one body of an error"),
        (500, body("internal"), "500 internal"),
        (502, b"", "502 without the one body of an error"),
        (503, body("overloaded"), ""),
        (503, body("internal"), "503 internal"),
        (504, body("too_late"), ""),
        (507, body("no_memory"), "507 no_memory"),
    ],
)
def test_faults(status: int, said: bytes, fault: str) -> None:
    assert fault_of(status, said) == fault


def test_a_page_of_them() -> None:
    figures = FuzzFigures()
    for status, fault in ((200, ""), (200, ""), (400, ""), (500, "500 internal: curl")):
        figures.note(RIGHT, status, 0.5, fault)
    text = render("Title", ["how"], figures, (10**7, 2 * 10**7))
    assert text.startswith("# Title\n\nhow\n")
    assert "| right | 4 | 200: 2, 400: 1, 500: 1 |" in text
    assert "4 requests, 50% of them answered with 200, the slowest after 0.5 s; not in order: 1. Memory 10 MB" in text
    assert text.endswith("- 500 internal: curl")
