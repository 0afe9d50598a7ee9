"""Common mistakes in bodies: the error says what the body seems to be, and what to send instead."""

import base64
import json
from typing import Any

import pytest

from berth.serve.errors import ServeError
from berth.serve.limits import RequestLimits
from berth.serve.questions.body import prepare_body
from berth.serve.questions.codecs import CSV, JSON, JSON_LINES, request_codec
from berth.serve.questions.question_answering import ModelTraits

ONE = {"question": "Who?", "context": "Ann."}
WHOLE = {"inputs": ONE}
TEXT = json.dumps(WHOLE)


def refusal(body: str | bytes, content_type: str) -> tuple[int, str]:
    """Status and error of a body that is refused before it is tokenised."""
    traits: Any = ModelTraits(None, 512, 0.0, RequestLimits())  # type: ignore[arg-type]
    sent = body.encode() if isinstance(body, str) else body
    with pytest.raises(ServeError) as caught:
        prepare_body(sent, request_codec(content_type), traits)
    return caught.value.status, caught.value.message


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        (json.dumps(TEXT), "the body is a string that holds JSON: send the object itself"),
        (json.dumps(json.dumps(TEXT)), "a string that holds JSON"),
        (json.dumps({"inputs": TEXT}), "`inputs` is a string that holds JSON: send the object itself"),
        (f"{TEXT}\n{TEXT}\n", "send a request a line as `application/jsonlines`"),
        (f"{TEXT}\r\n \r\n{TEXT}", "send a request a line as `application/jsonlines`"),
        (json.dumps("Who?"), "the body is a string"),
        ("inputs=Who%3F&context=Ann", "a form: send the JSON object"),
        (f"inputs={TEXT}", "a form: send the JSON object"),
        (f'--x1\r\nContent-Disposition: form-data; name="inputs"\r\n\r\n{TEXT}\r\n--x1--', "multipart"),
        ("%7B%22inputs%22%3A1%7D", "percent-encoded"),
        (base64.b64encode(TEXT.encode()), "Base64"),
        (str(TEXT.encode()), "bytes"),
        (str(WHOLE), "double quotes"),
        ('{"parameters": {"top_k": NaN}}', "NaN is not a JSON value"),
        ("<html></html>", "XML or HTML"),
        ("question,context\nWho?,Ann\n", "Content-Type text/csv"),
        ('"Who?","Ann, I say"\n', "Content-Type text/csv"),
        ("2024,Ann\n", "Content-Type text/csv"),
        ("", 'the body is empty: send {"inputs"'),
        (json.dumps({"body": TEXT}), 'unknown key `body` in the body: send {"inputs"'),
        (json.dumps({"instances": [ONE]}), "unknown key `instances` in the body: did you mean `inputs`?"),
        (json.dumps({"data": ONE}), 'unknown key `data` in the body: send {"inputs"'),
        (json.dumps({"input": ONE}), "did you mean `inputs`?"),
        (json.dumps([ONE, ONE]), 'the body is a list: send {"inputs": […]}'),
        (
            json.dumps({"query": "a", "passage": "b"}),
            "`query` in the body: did you mean `question`?; unknown key `passage`",
        ),
        (json.dumps({"question": "a", "text": "b"}), "did you mean `context`?"),
        (json.dumps({"inputs": {"query": "a", "document": "b"}}), "did you mean `question`?; unknown key `document`"),
        (TEXT.encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08", "gzip"),
    ],
)
def test_common_mistakes_in_json_bodies_get_advice(body: str | bytes, facts: str) -> None:
    status, sentence = refusal(body, JSON)
    assert (status, facts in sentence) == (400, True), sentence


@pytest.mark.parametrize(
    ("content_type", "body", "status", "facts"),
    [
        (CSV, TEXT, 400, "send it as `application/json`"),
        (CSV, json.dumps(WHOLE, indent=2), 400, "send it as `application/json`"),
        (CSV, '[{"a": 1},\n2]', 400, "send it as `application/json`"),
        (CSV, ' [\n  "a", "b"]', 400, "send it as `application/json`"),
        (JSON_LINES, json.dumps(WHOLE, indent=2), 400, "send it as `application/json`"),
        ("application/x-www-form-urlencoded", TEXT, 415, "-H 'Content-Type: application/json'"),
        ("multipart/form-data; boundary=x", TEXT, 415, "with Content-Type application/json"),
        ("application/x-ndjson", TEXT, 415, "send `application/jsonlines`"),
        ("text/plain", TEXT, 415, "send `application/json`, `application/jsonlines` or `text/csv`"),
    ],
)
def test_wrong_content_types_get_advice(content_type: str, body: str, status: int, facts: str) -> None:
    refusal_status, sentence = refusal(body, content_type)
    assert (refusal_status, facts in sentence) == (status, True), sentence


def test_byte_order_mark_does_not_change_the_error() -> None:
    assert refusal(b"\xef\xbb\xbf7", JSON) == refusal("7", JSON)


def test_error_for_a_huge_key_is_short() -> None:
    _, sentence = refusal(json.dumps({"q" * 1_000_000: 1}), JSON)
    assert len(sentence) < 300
