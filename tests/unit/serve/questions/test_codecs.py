"""Media types: Content-Type and Accept as clients send them, and how each type is read and written."""

import json

import pytest

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import BodyTooLargeError, RequestLimits
from berth.serve.questions.codecs import CODECS, CSV, JSON, JSON_LINES, answer_codec, request_codec, text_of
from berth.serve.questions.json_text import decode, dump, encode
from berth.serve.questions.records import Records

ANSWER = {"score": 0.5, "start": 3, "end": 8, "answer": "Paris"}
SECOND = {"score": 0.25, "start": 0, "end": 9, "answer": 'the "old"\ncity, here'}
REFUSED = ServeError(Kind.BAD_REQUEST, "`context` is empty: send some text")
SUPPORTED_TYPES = "send `application/json`, `application/jsonlines` or `text/csv`"


@pytest.mark.parametrize(
    ("header", "media_type"),
    [
        (None, JSON),
        ("", JSON),
        ("application/json", JSON),
        ("application/json; charset=utf-8", JSON),
        ('Application/JSON;CHARSET="UTF-8"', JSON),
        ("application/json;charset=us-ascii", JSON),
        ("application/json; charset=utf8; profile=x", JSON),
        ("application/json;", JSON),
        ("application/jsonlines", JSON_LINES),
        ("text/csv; header=present", CSV),
    ],
)
def test_request_codec_reads_content_type_parameters(header: str | None, media_type: str) -> None:
    assert request_codec(header).media_type == media_type


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("application/x-npy", f"Content-Type `application/x-npy` can't be read: {SUPPORTED_TYPES}"),
        ("application/jsons", f"Content-Type `application/jsons` can't be read: {SUPPORTED_TYPES}"),
        ("application/json; charset=klingon", "charset `klingon` can't be read: send UTF-8"),
        ("application/json; charset=latin-1", "charset `latin-1` can't be read: send UTF-8"),
    ],
)
def test_unknown_content_type_or_charset_gets_415(header: str, sentence: str) -> None:
    with pytest.raises(ServeError) as caught:
        request_codec(header)
    assert (caught.value.status, caught.value.message) == (415, sentence)


@pytest.mark.parametrize(
    ("header", "media_type"),
    [
        (None, CSV),
        ("", CSV),
        ("*/*", CSV),
        ("*; q=.2", CSV),
        ("text/*", CSV),
        ("application/json", JSON),
        ("APPLICATION/JSON; charset=utf-8", JSON),
        ("application/*;q=0.1", JSON),
        ("text/html, */*;q=0.1", CSV),
        ("application/json;q=high", JSON),
        ("application/jsonlines, application/json;q=0.9", JSON_LINES),
        ("text/html, application/jsonlines, text/csv", JSON_LINES),
    ],
)
def test_answer_codec_takes_the_first_accepted_type(header: str | None, media_type: str) -> None:
    assert answer_codec(header, CODECS[CSV]).media_type == media_type


@pytest.mark.parametrize("header", [None, "*/*"])
def test_default_answer_type_overrides_the_requests_type(header: str | None) -> None:
    assert answer_codec(header, CODECS[CSV], JSON_LINES).media_type == JSON_LINES


@pytest.mark.parametrize("header", ["text/html", "image/*,text/plain"])
def test_unknown_accept_gets_406(header: str) -> None:
    with pytest.raises(ServeError) as caught:
        answer_codec(header, CODECS[JSON])
    assert (caught.value.status, caught.value.message) == (
        406,
        f"Accept `{header}` can't be served: accept `application/json`, `application/jsonlines` or `text/csv`",
    )


@pytest.mark.parametrize(
    ("body", "media_type", "sentence"),
    [
        (b"", JSON, 'the body is empty: send {"inputs": {"question": "…", "context": "…"}}'),
        (b" \n", JSON, 'the body is empty: send {"inputs": {"question": "…", "context": "…"}}'),
        (b"\xef\xbb\xbf", JSON, 'the body is empty: send {"inputs": {"question": "…", "context": "…"}}'),
        (
            b"\n",
            JSON_LINES,
            'the body is empty: send a request a line, such as {"inputs": {"question": "…", "context": "…"}}',
        ),
        (b"\n", CSV, 'the body is empty: send a question a row, such as "…question…","…context…"'),
        (b'{"a": "\xff"}', JSON, "the body is not UTF-8 (byte 7 of 10): send it in UTF-8"),
    ],
    ids=["empty", "blank", "a byte order mark", "empty lines", "empty table", "latin-1"],
)
def test_empty_or_non_utf_8_body_is_refused(body: bytes, media_type: str, sentence: str) -> None:
    with pytest.raises(ServeError) as caught:
        text_of(body, media_type)
    assert (caught.value.status, caught.value.message) == (400, sentence)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "{'a': 1}",
            "the body is not JSON (Expecting property name enclosed in double quotes at column 2)",
        ),
        ('{"a": "b', "the body is not JSON (Unterminated string starting at column 7)"),
        ('{"a": "\t"}', "the body is not JSON (Invalid control character at column 8)"),
        ('{"a": 1}{', "the body is not JSON (Extra data at column 9)"),
        ('{"a": 1}\n{"a": 2}', "the body is not JSON (Extra data at line 2, column 1)"),
        ('{"a": NaN}', "the body is not JSON that can be read (NaN is not a JSON value: write null or a number)"),
        ("[" * 100_000, "the body is not JSON that can be read (it is nested too deeply)"),
        ("1" * 5000, "the body is not JSON that can be read (Exceeds the limit (4300 digits) for integer string"),
    ],
    ids=["python", "unterminated", "tab", "two values", "two lines", "nan", "nested", "digits"],
)
def test_decode_names_the_place_of_the_mistake(text: str, sentence: str) -> None:
    with pytest.raises(ServeError) as caught:
        decode(text, "the body")
    assert caught.value.status == 400
    assert caught.value.message.startswith(sentence)


def test_text_after_a_json_value_is_not_a_second_line() -> None:
    with pytest.raises(ServeError, match=r"\(Extra data at column 10\)$"):
        list(read(JSON, '{"a": 1} x').values)


@pytest.mark.parametrize("text", ["Zürich", "🙂🙃", "a\0b", "\ud83d", "x\udfff\ud800y", '"\\\n\u2028'])
def test_dump_and_encode_keep_every_text(text: str) -> None:
    assert json.loads(encode(dump({"answer": text})).decode("utf-8")) == {"answer": text}


def test_nan_can_not_be_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump({"score": float("nan")})


def read(media_type: str, text: str, limits: RequestLimits | None = None) -> Records:
    return CODECS[media_type].read(text, limits or RequestLimits())


def question(question: str, context: str) -> object:
    return {"inputs": {"question": question, "context": context}}


@pytest.mark.parametrize(
    ("media_type", "text", "expected"),
    [
        (
            JSON_LINES,
            '{"a": "\u2028\x85"}\r\n\n  \n{"a": \n7',
            [{"a": "\u2028\x85"}, "the line is not JSON (Expecting value at column 7)", 7],
        ),
        (JSON_LINES, "7\n\ufeff8\n", [7, 8]),
        (
            CSV,
            "a,b\nc\nd,e,f\n",
            [
                question("a", "b"),
                "the row has 1 column: it must have 2, question and context, separated by commas",
                "the row has 3 columns: it must have 2, question and context, separated by commas; put a text with "
                "commas into double quotes",
            ],
        ),
        (
            CSV,
            "n,question,context\nc,d\n",
            ["the row has 2 columns: it must have 3, those of the first row, separated by commas"],
        ),
        (CSV, "[1] Who?,Ben.\n{who},Ann.\n", [question("[1] Who?", "Ben."), question("{who}", "Ann.")]),
        (CSV, f"Who?,{'a' * 200_000}", [question("Who?", "a" * 200_000)]),
    ],
    ids=["lines", "a byte order mark", "wrong rows", "wrong row after names", "brackets", "a long cell"],
)
def test_each_line_or_row_is_a_record(media_type: str, text: str, expected: list[object]) -> None:
    records = read(media_type, text)
    assert records.separate
    assert [each.message if isinstance(each, ServeError) else each for each in records.values] == expected


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ('Who?,"Paris, she ""said"""\r\nWhere?,"two\r\nlines"\r\n', False),
        ('question,context\nWho?,"Paris, she ""said"""\nWhere?,"two\r\nlines"', True),
        (' Context ,Question\n"Paris, she ""said""",Who?\n\n"two\r\nlines",Where?\n', True),
        ('id,question,context\n1,Who?,"Paris, she ""said"""\n2,Where?,"two\r\nlines"\n', True),
    ],
    ids=["no header", "header", "other order", "other columns"],
)
def test_csv_has_one_record_per_row(text: str, header: bool) -> None:
    records = read(CSV, text)
    assert list(records.values) == [question("Who?", 'Paris, she "said"'), question("Where?", "two\r\nlines")]
    assert (records.separate, records.header) == (True, header)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "question,text\na,b\n",
            "the first row names only the column `question`: name both, `question` and `context`, or none",
        ),
        (
            " Context \na\n",
            "the first row names only the column `context`: name both, `question` and `context`, or none",
        ),
        ("question,context\n", "the body has only a row of column names: send a question a row"),
    ],
)
def test_csv_with_unusable_column_names_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ServeError) as caught:
        read(CSV, text)
    assert (caught.value.status, caught.value.message) == (400, sentence)


ONE, MANY = Records(iter(()), separate=False, header=True), Records(iter(()), separate=True, count=3)
REFUSED_RECORD = {"error": "`context` is empty: send some text", "error_type": "bad_request"}


def test_json_answers() -> None:
    assert json.loads(CODECS[JSON].write(ONE, [ANSWER])) == ANSWER
    assert json.loads(CODECS[JSON].write(ONE, [[ANSWER, SECOND]])) == [ANSWER, SECOND]
    assert json.loads(CODECS[JSON].write(MANY, [ANSWER, REFUSED, [SECOND]])) == [ANSWER, REFUSED_RECORD, [SECOND]]


def test_json_lines_answers() -> None:
    def lines(records: Records, outcomes: list[object]) -> list[object]:
        *whole, rest = CODECS[JSON_LINES].write(records, outcomes).split("\n")
        assert rest == ""
        return [json.loads(line) for line in whole]

    assert lines(ONE, [ANSWER]) == [ANSWER]
    assert lines(ONE, [[ANSWER, SECOND]]) == [ANSWER, SECOND]
    assert lines(MANY, [ANSWER, REFUSED, [SECOND]]) == [ANSWER, REFUSED_RECORD, [SECOND]]


def test_csv_answers() -> None:
    header = "score,start,end,answer,error\r\n"
    rows = '0.5,3,8,Paris,\r\n,,,,`context` is empty: send some text\r\n0.25,0,9,"the ""old""\ncity, here",\r\n'
    with_names = Records(iter(()), separate=True, header=True, count=3)
    assert CODECS[CSV].write(MANY, [ANSWER, REFUSED, SECOND]) == rows
    assert CODECS[CSV].write(with_names, [ANSWER, REFUSED, SECOND]) == header + rows
    assert CODECS[CSV].write(ONE, [[ANSWER]]) == header + "0.5,3,8,Paris,\r\n"


@pytest.mark.parametrize(
    ("media_type", "text", "header"), [(JSON, "1", True), (JSON_LINES, "1\n2", False), (CSV, "a,b", False)]
)
def test_csv_answer_has_column_names_unless_the_request_is_lines_without_names(
    media_type: str, text: str, header: bool
) -> None:
    records = read(media_type, text)
    written = CODECS[CSV].write(records, [ANSWER] * records.count)
    assert written.startswith("score,start,end,answer,error\r\n") is header


def test_csv_can_not_hold_a_list_of_answers() -> None:
    sentence = "a list of answers is not a row of CSV: accept `application/jsonlines`"
    assert CODECS[CSV].write(MANY, [[ANSWER], ANSWER, ANSWER]).split("\r\n")[0] == f",,,,{sentence}"
    with pytest.raises(ServeError) as caught:
        CODECS[CSV].write(ONE, [[[ANSWER]]])
    assert (caught.value.status, caught.value.message) == (406, sentence)


def test_records_are_counted_before_any_is_decoded() -> None:
    limits = RequestLimits(tokens=3 * 32)
    for media_type, line in ((JSON_LINES, "{"), (CSV, 'a,"b"c')):
        assert read(media_type, f"{line}\n\n" * 3, limits).count == 3
        with pytest.raises(BodyTooLargeError, match=r"more than 3 records: send fewer .* BERTH_MAX_REQUEST_TOKENS$"):
            read(media_type, f"{line}\n\n" * 4, limits)


def test_batch_transform_with_too_many_records_names_max_payload() -> None:
    limits = RequestLimits(tokens=32, batch=True)
    with pytest.raises(
        BodyTooLargeError, match="more than 64 records: lower the job's MaxPayloadInMB, or raise BERTH_"
    ):
        read(JSON_LINES, "{\n" * 65, limits)


def test_too_long_record_is_not_decoded() -> None:
    limits = RequestLimits(tokens=64)  # at most 4,096 characters; decoding the record would give another error
    [value] = read(JSON_LINES, "x" * 4097, limits).values
    assert (value.kind, "4096" in value.message) == (Kind.TOO_LARGE, True)
    for media_type in (JSON, CSV):
        with pytest.raises(ServeError, match="4096") as caught:
            list(read(media_type, "x" * 4097, limits).values)
        assert caught.value.kind == Kind.TOO_LARGE
