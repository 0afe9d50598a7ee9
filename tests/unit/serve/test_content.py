"""Types in and out: headers as real clients send them, and bodies that are not quite JSON."""

import encodings
import json

import pytest

from berth.serve.content import check_accept, check_content_type, decode, encode
from berth.serve.errors import ServeError


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "application/json",
        "application/json; charset=utf-8",
        'Application/JSON;CHARSET="UTF-8"',
        "application/json;charset=us-ascii",
        "application/json; charset=utf8; profile=x",
        "application/json;",
    ],
)
def test_content_types_that_are_read(header: str | None) -> None:
    check_content_type(header)


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("text/csv", "Content-Type `text/csv` can't be read: send `application/json`"),
        ("application/x-npy", "Content-Type `application/x-npy` can't be read: send `application/json`"),
        ("application/jsonlines", "Content-Type `application/jsonlines` can't be read: send `application/json`"),
        ("application/json; charset=latin-1", "charset `latin-1` can't be read: send JSON in UTF-8"),
        ("application/json; charset=klingon", "charset `klingon` can't be read: send JSON in UTF-8"),
        ("application/json; charset=rot13", "charset `rot13` can't be read: send JSON in UTF-8"),
    ],
)
def test_content_types_that_are_not(header: str, sentence: str) -> None:
    with pytest.raises(ServeError) as caught:
        check_content_type(header)
    assert (caught.value.status, caught.value.message) == (415, sentence)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "*/*",
        "application/json",
        "application/*;q=0.1",
        "application/json, text/plain",
        "text/html, */*;q=0.1",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "*/*;q=0, application/json",
        "application/json;q=high",
        "*; q=.2",
    ],
)
def test_accepts_that_are_served(header: str | None) -> None:
    check_accept(header)


@pytest.mark.parametrize(
    "header",
    ["text/csv", "application/json;q=0", "application/json;q=0, */*", "application/*;q=0.0, */*;q=1", "image/*,text/*"],
)
def test_accepts_that_are_not(header: str) -> None:
    with pytest.raises(ServeError) as caught:
        check_accept(header)
    assert caught.value.status == 406
    assert caught.value.message == f"Accept `{header}` can't be served: accept `application/json`"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", 'the body is empty: send {"inputs": {"question": "…", "context": "…"}}'),
        (b" \n", 'the body is empty: send {"inputs": {"question": "…", "context": "…"}}'),
        (b'{"a": "\xff"}', "the body is not UTF-8 (byte 7 of 10): send JSON in UTF-8"),
        (b"{'a': 1}", "the body is not JSON (Expecting property name enclosed in double quotes at line 1, column 2)"),
        (b'{"a": "b', "the body is not JSON (Unterminated string starting at line 1, column 7)"),
        (b'{"a": "\t"}', "the body is not JSON (Invalid control character at line 1, column 8)"),
        (b'{"a": 1}{', "the body is not JSON (Extra data at line 1, column 9)"),
        (b'{"a": NaN}', "the body is not JSON that can be read (NaN is no JSON value)"),
        (b"[" * 100_000, "the body is not JSON that can be read (it is nested too deeply)"),
    ],
    ids=["empty", "blank", "latin-1", "python", "unterminated", "tab", "two values", "nan", "nested"],
)
def test_bodies_that_are_no_json(body: bytes, sentence: str) -> None:
    with pytest.raises(ServeError) as caught:
        decode(body)
    assert (caught.value.status, caught.value.message) == (400, sentence)


def test_names_of_charsets_leave_nothing_in_memory() -> None:
    known = dict(encodings._cache)  # type: ignore[attr-defined]
    for number in range(10):
        with pytest.raises(ServeError, match="can't be read: send JSON in UTF-8"):
            check_content_type(f"application/json; charset=x-{number}-{'x' * 1000}")
    assert encodings._cache == known  # type: ignore[attr-defined]


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ServeError, match="the body is not JSON that can be read"):
        decode(b"1" * 5000)


def test_a_byte_order_mark_is_no_text() -> None:
    assert decode(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("text", ["Zürich", "🙂🙃", "a\0b", "\ud83d", "x\udfff\ud800y", '"\\\n\u2028'])
def test_every_text_survives_the_way_out_and_in(text: str) -> None:
    assert json.loads(encode({"answer": text}).decode("utf-8")) == {"answer": text}


def test_characters_go_out_as_themselves() -> None:
    assert encode({"answer": "Zürich 🙂"}) == '{"answer": "Zürich 🙂"}'.encode()


def test_a_score_that_is_no_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode({"score": float("nan")})
