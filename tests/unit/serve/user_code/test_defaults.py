"""The default input_fn: what serve/README.md says that it returns, and the bodies that it refuses."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from berth.images.pins import pins
from berth.serve.errors import ServeError
from berth.serve.questions.codecs import CSV, JSON, JSON_LINES
from berth.serve.user_code.defaults import NPY, decode_body

TABLE = (pins.ROOT / "serve/README.md").read_text("utf-8").partition("what `predict_fn` gets")[2]


def npy(value: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("media_type", "body", "value"),
    [
        (JSON, b'{"inputs": [1]}', {"inputs": [1]}),
        ("Application/JSON; charset=UTF-8", '"ä"'.encode(), "ä"),
        (JSON_LINES, b'{"a": 1}\n2\n', [{"a": 1}, 2]),
        (CSV, b"1,two\n3,four\n", [["1", "two"], ["3", "four"]]),
        (CSV, b"inputs\nx\n", {"inputs": ["x"]}),
        (CSV, b"question,context\nq,c\n", {"inputs": [{"question": "q", "context": "c"}]}),
    ],
)
def test_value_of_a_body(media_type: str, body: bytes, value: object) -> None:
    assert decode_body(body, media_type) == value
    assert f"| `{media_type.lower().partition(';')[0]}`" in TABLE


def test_array_of_an_npy_body() -> None:
    array = np.array([[1, 2], [3, 4]])
    assert np.array_equal(decode_body(npy(array), NPY), array)
    assert f"| `{NPY}`" in TABLE


@pytest.mark.parametrize(
    ("media_type", "body", "status"),
    [
        (CSV, b"\xff", 400),
        (CSV, b" ", 400),
        ("text/csv;charset=latin1", b"1", 415),
        ("text/plain", b"1", 415),
        ("application/x-www-form-urlencoded", b"1", 415),
        ("application/ndjson", b"1", 415),
    ],
)
def test_unreadable_body_is_refused(media_type: str, body: bytes, status: int) -> None:
    with pytest.raises(ServeError) as caught:
        decode_body(body, media_type)
    assert caught.value.status == status


def test_npy_body_with_a_pickle_is_refused(tmp_path: Path) -> None:
    class Touches:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "loaded",)

    for body in (npy(np.array([Touches()], dtype=object), allow_pickle=True), b"\x80\x04junk", npy(1)[:-3], b""):
        with pytest.raises(ServeError, match=r"^the body is not an array in NumPy's format \(") as caught:
            decode_body(body, NPY)
        assert caught.value.status == 400
    assert not (tmp_path / "loaded").exists()
