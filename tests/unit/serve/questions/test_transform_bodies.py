"""Files cut into bodies in every way that a batch transform has: each row is answered in its place, or the file is
refused with the setting to change.
"""

import asyncio
import csv
import io
import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from berth.qa.tokenizer import PairTokenizer
from berth.runtime.engines.engine import RowLogits
from berth.serve.admission import Share
from berth.serve.errors import ServeError
from berth.serve.limits import RequestLimits
from berth.serve.questions.body import PreparedBody, Reader, answer_body, prepare_body
from berth.serve.questions.codecs import CSV, JSON, JSON_LINES, answer_codec, request_codec
from berth.serve.questions.question_answering import ModelTraits
from tests.unit.small_models import tiny_tokenizer

ROWS = 9
BAD = "error"
NAMES = "score,start,end,answer,error"


def whole(file: bytes) -> Iterator[bytes]:
    """SplitType None, with either BatchStrategy."""
    yield file


def single(file: bytes) -> Iterator[bytes]:
    """SplitType Line, BatchStrategy SingleRecord: one body per line."""
    yield from file.splitlines(keepends=True)


def single_without_ends(file: bytes) -> Iterator[bytes]:
    yield from (line for line in file.split(b"\n") if line)


def several(most: int) -> Callable[[bytes], Iterator[bytes]]:
    """SplitType Line, BatchStrategy MultiRecord, as the SDK's local mode cuts a file: as many lines as fit into `most`
    bytes. It sends an empty body before a first line that does not fit."""

    def cut(file: bytes) -> Iterator[bytes]:
        body = b""
        for line in file.splitlines(keepends=True):
            if len(body) + len(line) > most:
                yield body
                body = b""
            body += line
        yield body

    return cut


CUTS = {
    "whole": whole,
    "single": single,
    "single without ends": single_without_ends,
    "one to two lines": several(60),
    "a few lines": several(150),
    "all lines": several(1 << 20),
}


@pytest.fixture(scope="module")
def traits() -> ModelTraits:
    return ModelTraits(PairTokenizer.of(tiny_tokenizer(), token_types=True), 128, 0.0, RequestLimits(batch=True))


def transformed(bodies: Iterator[bytes], content_type: str, accept: str, traits: ModelTraits) -> list[str]:
    """The lines of the output file with AssembleWith Line. ServeError for the first body that is refused, because
    SageMaker then ends the job.
    """
    requested = request_codec(content_type)
    codec = answer_codec(accept, requested)
    written = []
    for body in bodies:
        prepared = prepare_body(body, requested, traits)
        logits = [RowLogits(*np.zeros((2, len(row.input_ids)), np.float32)) for row in prepared.rows]
        written.append(answer_body(prepared, logits, codec).decode() + "\n")
    return [line for line in "".join(written).splitlines() if line]


def answers(lines: list[str], accept: str) -> list[str]:
    """The answer to each row (the only word of its context), BAD for an error, and NAMES for a row of column names."""
    if accept == JSON_LINES:
        return [json.loads(line).get("answer", BAD) for line in lines]
    texts = []
    for row in csv.reader(io.StringIO("\n".join(lines))):
        texts.append(NAMES if row == NAMES.split(",") else BAD if row[4] else row[3])
    return texts


def json_lines(end: str = "\n", bad: dict[int, str] | None = None) -> str:
    rows = [json.dumps({"question": "Who?", "context": f"word{number}"}) for number in range(ROWS)]
    for number, line in (bad or {}).items():
        rows[number] = line
    return "".join(f"{row}{end}" for row in rows)


def table(end: str = "\n", names: str = "", bad: dict[int, str] | None = None) -> str:
    rows = [f'"Who, or {number}?",word{number}' for number in range(ROWS)]
    for number, line in (bad or {}).items():
        rows[number] = line
    return "".join(f"{row}{end}" for row in [*([names] if names else []), *rows])


GOOD = [f"word{number}" for number in range(ROWS)]
ONE_BAD = [*GOOD[:4], BAD, *GOOD[5:]]
FILES = {
    "lines": (JSON_LINES, json_lines(), GOOD),
    "lines, CRLF": (JSON_LINES, json_lines("\r\n"), GOOD),
    "lines, blank ones": (JSON_LINES, json_lines("\n\n") + "\n \n", GOOD),
    "lines, byte order mark": (JSON_LINES, "\ufeff" + json_lines(), GOOD),
    "lines, no end": (JSON_LINES, json_lines().rstrip(), GOOD),
    "lines, a bad one": (JSON_LINES, json_lines(bad={4: '{"question": 1}'}), ONE_BAD),
    "lines, one that is not JSON": (JSON_LINES, json_lines(bad={4: "{"}), ONE_BAD),
    "table": (CSV, table(), GOOD),
    "table, CRLF": (CSV, table("\r\n"), GOOD),
    "table, blank lines": (CSV, table("\n\n") + "\n\n", GOOD),
    "table, byte order mark": (CSV, "\ufeff" + table(), GOOD),
    "table, a bad row": (CSV, table(bad={4: "one column"}), ONE_BAD),
    "table, text behind a quote": (CSV, table(bad={4: '"Who"?,word4'}), ONE_BAD),
    "names": (CSV, table(names="question,context"), [NAMES, *GOOD]),
    "names, CRLF": (CSV, table("\r\n", names='"Question","Context"'), [NAMES, *GOOD]),
    "names, byte order mark": (CSV, "\ufeff" + table(names="question,context"), [NAMES, *GOOD]),
    "names, blank last line": (CSV, table(names="question,context") + "\n", [NAMES, *GOOD]),
}


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", FILES)
def test_every_row_is_answered_in_its_place(traits: ModelTraits, name: str, cut: str) -> None:
    content_type, text, expected = FILES[name]
    lines = transformed(CUTS[cut](text.encode()), content_type, content_type, traits)
    assert answers(lines, content_type) == expected


@pytest.mark.parametrize(
    ("content_type", "good", "bad"),
    [
        (JSON_LINES, b'{"question": "a", "context": "b"}', b'{"question": "\xff", "context": "b"}'),
        (CSV, b"a,b", b"a,\xff"),
    ],
)
def test_invalid_utf_8_is_an_error_of_its_record_only(
    traits: ModelTraits, content_type: str, good: bytes, bad: bytes
) -> None:
    prepared = prepare_body(b"\n".join([good, bad, good]), request_codec(content_type), traits)
    first, second, third = prepared.outcomes
    assert isinstance(second, ServeError)
    assert (second.status, "not UTF-8" in second.message) == (400, True)
    assert not isinstance(first, ServeError)
    assert not isinstance(third, ServeError)


OTHER_ORDER = "context,question\n" + "".join(f'word{number},"Who, or {number}?"\n' for number in range(ROWS))
LONG_ROW = '"Who is the first of all of them,\nwho is the last of all of them, and\nwho is not?",word4'
REFUSED = {
    "other order": (OTHER_ORDER, [*CUTS], "write the file with these two columns in this order"),
    "other columns": (
        "id,question,context\n" + "".join(f"{number},Who?,word{number}\n" for number in range(ROWS)),
        [*CUTS],
        'InputFilter to "$[1:3]"',
    ),
    "text over several lines": (
        table(bad={4: LONG_ROW}),
        ["single", "single without ends", "one to two lines", "a few lines"],
        "set SplitType to None",
    ),
    "open quote": (table(bad={4: 'Who?,"word4'}), [*CUTS], "SplitType Line"),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", REFUSED)
def test_csv_that_could_be_read_wrongly_in_parts_is_refused(traits: ModelTraits, name: str, cut: str) -> None:
    text, cuts, advice = REFUSED[name]
    if cut not in cuts:
        assert answers(transformed(CUTS[cut](text.encode()), CSV, CSV, traits), CSV) == GOOD
        return
    with pytest.raises(ServeError) as caught:
        transformed(CUTS[cut](text.encode()), CSV, CSV, traits)
    assert (caught.value.status, advice in caught.value.message) == (400, True), caught.value.message


def test_later_bodies_of_a_refused_file_are_refused(traits: ModelTraits) -> None:
    reader = Reader(Share(1 << 20, "bytes of requests wait to be read", lambda: 0.0))

    def read(body: bytes) -> PreparedBody:
        return asyncio.run(reader.read(body, request_codec(CSV), traits))

    first, *others = single(OTHER_ORDER.encode())
    with pytest.raises(ServeError, match=r"^the first row names the columns context, question, and"):
        read(first)
    for body in others:
        with pytest.raises(ServeError, match=r"^a body before this one was refused, and this one may be of the same"):
            read(body)
    assert [len(read(body).outcomes) for body in single(table(names="question,context").encode())] == [0] + ROWS * [1]


def test_json_lines_answer_has_no_line_for_column_names(traits: ModelTraits) -> None:
    names = table(names="question,context").encode()
    for cut in ("whole", "a few lines", "all lines"):
        assert answers(transformed(CUTS[cut](names), CSV, JSON_LINES, traits), JSON_LINES) == GOOD
    with pytest.raises(ServeError, match="BatchStrategy SingleRecord") as caught:
        transformed(single(names), CSV, JSON_LINES, traits)
    assert caught.value.status == 406


def test_json_lines_sent_as_json_are_refused_unless_one_per_body(traits: ModelTraits) -> None:
    assert len(transformed(single(json_lines().encode()), JSON, JSON, traits)) == ROWS
    with pytest.raises(ServeError, match="`application/jsonlines`"):
        transformed(whole(json_lines().encode()), JSON, JSON, traits)
