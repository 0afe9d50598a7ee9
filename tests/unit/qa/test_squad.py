"""Tests the questions in data files: all notations, and the errors with file, place and advice."""

import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest

from berth.qa.answers import UNKNOWN, misplacement
from berth.qa.squad import Answer, AnswerCheck, DataError, Example, QuestionReader, read
from tests.unit.qa.data_files import CONTEXT, EXPECTED, OSLO, flat, lines, numbered, official, write

ROW = flat(EXPECTED)[0]
UNANSWERABLE: dict[str, dict[str, object]] = {
    "an-empty-list": {"answers": []},
    "official": {
        "answers": [],
        "is_impossible": True,
        "plausible_answers": [{"text": "Oslo", "answer_start": OSLO}],
    },
    "flat": {"answers": {"text": [], "answer_start": []}},
    "impossible-alone": {"is_impossible": True},
    "impossible-in-words": {"is_impossible": "true", "answers": []},
    "impossible-as-a-number": {"is_impossible": 1.0, "answers": []},
    "impossible-with-an-answer": {"is_impossible": True, "answers": [{"text": "Oslo", "answer_start": OSLO}]},
    "an-empty-text": {"answers": {"text": [""], "answer_start": [0]}},
    "an-empty-text-official": {"answers": [{"text": "", "answer_start": -1}]},
    "white-space": {"answers": {"text": [" "], "answer_start": [-1]}},
    "a-null-text": {"answers": {"text": [None], "answer_start": [None]}},
    "null": {"answers": None},
    "an-empty-object": {"answers": {}},
    "an-empty-text-alone": {"answers": [""]},
    "one-text": {"answers": {"text": "", "answer_start": -1}},
    "nowhere": {"answers": {"text": ["no answer"], "answer_start": [-1]}},
}


@pytest.mark.parametrize("unanswerable", UNANSWERABLE.values(), ids=UNANSWERABLE.keys())
@pytest.mark.parametrize("offsets", [True, False])
def test_all_notations_of_an_unanswerable_question(
    tmp_path: Path, unanswerable: dict[str, object], offsets: bool
) -> None:
    path = write(tmp_path / "t.json", [{"id": "q1", "question": "Why?", "context": CONTEXT} | unanswerable])
    (example,) = read(path, version_2_with_negative=True, offsets=offsets)
    assert example == Example("q1", "Why?", CONTEXT, ())
    with pytest.raises(DataError, match=r"t\.json, row 1 \(id q1\): the question has no answer; set version_2"):
        read(path, offsets=offsets)


def test_empty_text_next_to_an_answer_is_dropped(tmp_path: Path) -> None:
    rows = [ROW | {"answers": {"text": ["", "Oslo"], "answer_start": [0, float(OSLO)]}}]
    assert read(write(tmp_path / "t.json", rows))[0].answers == (Answer("Oslo", OSLO),)


def test_only_training_needs_offsets(tmp_path: Path) -> None:
    for number, answers in enumerate(
        ([{"text": "Oslo"}], {"text": ["Oslo"]}, {"text": ["Oslo"], "answer_start": [None]})
    ):
        path = write(tmp_path / f"{number}.json", [ROW | {"answers": answers}])
        assert read(path)[0].answers == (Answer("Oslo", UNKNOWN),)
        with pytest.raises(DataError, match='whole number "answer_start"'):
            read(path, offsets=True)


def test_only_scoring_needs_answers(tmp_path: Path) -> None:
    bare = {name: value for name, value in ROW.items() if name != "answers"}
    path = write(tmp_path / "t.json", [bare, bare | {"id": "q2"}])
    reader = QuestionReader(path, answers=False)
    assert [example.answers for example in reader] == [(), ()]
    reader.check()
    assert not reader.scored
    with pytest.raises(DataError, match='"answers" is missing'):
        read(path)
    reader = QuestionReader(write(tmp_path / "some.json", [bare, ROW | {"id": "q2"}]), answers=False)
    assert len(list(reader)) == 2
    with pytest.raises(DataError, match=r'some\.json has 1 question without "answers" and others with them'):
        reader.check()
    reader = QuestionReader(write(tmp_path / "all.json", [ROW]), answers=False)
    assert len(list(reader)) == 1
    reader.check()
    assert reader.scored


@pytest.mark.parametrize(
    ("name", "content"),
    [("t.json", [{"id": None}, {"id": ""}, {}]), ("t.jsonl", None), ("t.parquet", [{}, {}, {}])],
)
def test_missing_ids_are_replaced_by_file_and_place(tmp_path: Path, name: str, content: Any) -> None:
    bare = {name: value for name, value in ROW.items() if name != "id"}
    rows = [bare | change for change in content or [{}, {"id": float("nan")}, {}]]
    write(tmp_path / "data" / name, rows if content else "".join(json.dumps(row) + "\n" for row in rows))
    word = "line" if name == "t.jsonl" else "row"
    for path in (tmp_path / "data", tmp_path / "data" / name):
        reader = QuestionReader(path, offsets=True)
        assert [example.id for example in reader] == [f"{name}, {word} {number}" for number in (1, 2, 3)]
        reader.check()
        assert reader.notes() == [
            f"3 questions without an id: file and place are used instead, such as '{name}, {word} 1'"
        ]


@pytest.mark.parametrize(("value", "id_"), [(7, "7"), (12.0, "12"), (1e15, "1000000000000000"), ("x", "x")])
def test_ids_may_be_numbers(tmp_path: Path, value: object, id_: str) -> None:
    assert read(write(tmp_path / "t.jsonl", json.dumps(ROW | {"id": value})))[0].id == id_


NO_ROWS = arrow.Table.from_pylist([ROW]).slice(0, 0)
HALF = lines(EXPECTED, ascii_only=True).replace("\\ud83d\\udc69", "\\ud83d", 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("t.json", "", r"t\.json is empty: pass a file", id="empty"),
        pytest.param(
            "t.jsonl", "", r't\.jsonl is empty: pass rows, one a line, like \{"id": …, "question"', id="empty-lines"
        ),
        pytest.param("t.jsonl", "\n \n", r"t\.jsonl is empty", id="blank-lines"),
        pytest.param("t.json", {"data": []}, r"t\.json has no question", id="no-questions"),
        pytest.param("t.json", official([]), r"t\.json has no question", id="no-paragraphs"),
        pytest.param("t.parquet", NO_ROWS, r"t\.parquet has no question", id="parquet-no-rows"),
        pytest.param(
            "t.parquet",
            [{"text": "Oslo", "label": 1, "id": "q"}],
            r"t\.parquet has no column question or context, only text, label, id: ro",
            id="parquet-columns",
        ),
        pytest.param("t.json", '{"data": [', r"t\.json is not JSON, line 1 column 11: .*; fix or", id="cut-off"),
        pytest.param("t.json", "[]\n[]", r"t\.json is not JSON, line 2 column 1: Extra data; fix", id="two-lists"),
        pytest.param("t.json", "[" * 100_000, r"t\.json is not SQuAD, it is nested too deeply", id="deep"),
        pytest.param("t.jsonl", "[" * 100_000, r"t\.jsonl, line 1: not SQuAD, it is nested too deeply", id="deep-line"),
        pytest.param("t.json", f"[{'1' * 5000}]", r"is not JSON: a number has too many digits; fix", id="digits"),
        pytest.param("t.jsonl", "1" * 5000, r"line 1: not JSON \(a number has too many digits\)", id="digits-line"),
        pytest.param("t.json", "42", r't\.json is not SQuAD, it has no list "data"', id="number"),
        pytest.param("t.json", {"text": "x"}, r'not SQuAD, it has no list "data": the layout is \{"data"', id="other"),
        pytest.param("t.json", {"data": ["x"]}, r"t\.json, row 1: not SQuAD, it is not a JSON object", id="strings"),
        pytest.param("t.json", {"data": [{"paragraphs": 1}]}, r'article 1: .* no list "paragraphs"', id="paragraphs"),
        pytest.param("t.json", {"data": [{"paragraphs": [{"qas": []}]}]}, r'paragraph 1: .* no "context"', id="ctx"),
        pytest.param("t.json", {"data": [{"paragraphs": [{"context": "x"}]}]}, r'no list "qas"', id="qas"),
        pytest.param("t.jsonl", lines(EXPECTED) + "{oops\n", r"t\.jsonl, line 3: not JSON \(", id="broken-line"),
        pytest.param("t.jsonl", "id,question\n1,Why?\n", r"t\.jsonl, line 1: not JSON \(.*\); rows look", id="table"),
        pytest.param("t.jsonl", "[1]\n", r"t\.jsonl, line 1: not SQuAD", id="line-no-object"),
        pytest.param(
            "t.jsonl",
            '{"id": "a"}\n',
            r'line 1 \(id a\): "question" is missing, and "context" is missing, and "answers" is missing; rows look',
            id="all-of-one-row",
        ),
        pytest.param(
            "t.json", [ROW | {"id": 12.5}], r"row 1: the id 12\.5 is not a whole number; give", id="id-fraction"
        ),
        pytest.param(
            "t.json",
            official([EXPECTED[0], replace(EXPECTED[1], id=1.5)]),  # type: ignore[arg-type]
            r"t\.json, article 1, paragraph 2, question 1: the id 1\.5 is not a whole number",
            id="place-in-official-layout",
        ),
        pytest.param("t.json", [ROW | {"id": True}], "the id is true or false", id="id-bool"),
        pytest.param("t.json", [ROW | {"id": ["q1"]}], "the id is a list", id="id-list"),
        pytest.param("t.json", [ROW | {"id": {"$oid": "q1"}}], "the id is an object", id="id-object"),
        pytest.param(
            "t.json", ROW | {"question": None}, r't\.json, row 1 \(id q1\): "question" is missing', id="single-row"
        ),
        pytest.param("t.json", [ROW | {"context": " "}], r'"context" is empty', id="context-blank"),
        pytest.param("t.json", [ROW | {"context": 7}], r'"context" is a number, not a text', id="context-number"),
        pytest.param(
            "t.parquet", [ROW | {"question": b"who"}], '"question" is a bytes, not a text', id="type-json-lacks"
        ),
        pytest.param("t.json", [ROW | {"answers": "Oslo"}], r'"answers" has another shape', id="answers-text"),
        pytest.param(
            "t.json",
            {"data": [{"paragraphs": [{"context": "x", "qas": [{"id": "q", "question": "Who?", "answers": "x"}]}]}]},
            r'^(?!.*rows look like).*; questions look like \{"id": …, "question": …, "answers": \[\{',
            id="layout-of-the-file",
        ),
        pytest.param("t.json", [ROW | {"answers": None}], "the question has no answer", id="answers-null"),
        pytest.param(
            "t.json", [ROW | {"answers": {"text": ["a"], "answer_start": []}}], "1 text and 0 answer_", id="lengths"
        ),
        pytest.param(
            "t.json",
            [ROW | {"answers": [{"text": "a", "answer_start": 1.5}]}],
            r'whole number "answer_start"',
            id="start",
        ),
        pytest.param("t.json", [ROW | {"is_impossible": True}], "the question has no answer", id="contradiction"),
        pytest.param("t.json", [ROW, ROW], r"row 2: the id 'q1' is used before; give", id="duplicate"),
        pytest.param(
            "t.parquet",
            [row | {"answers": []} for row in flat(numbered(13, 0))],
            r"^13 rows can't be used: .*/t\.parquet, row 1 \(id q0\), row 2 \(id q1\), .*row 10 \(id q9\): the "
            r"question has no answer; and 3 more\. Set version_2_with_negative",
            id="ten-of-thirteen",
        ),
        pytest.param("t.jsonl", HALF, r'line 1 \(id q1\): "context" holds half a character', id="surrogate"),
        pytest.param("t.txt", "x", r"t\.txt is not a data file: its name must end in \.json", id="suffix"),
        pytest.param("t.arrow.xz", "x", r"t\.arrow\.xz is not a data file", id="packed-suffix"),
    ],
)
def test_faults_are_reported_in_one_sentence(tmp_path: Path, name: str, content: object, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_repeated_id_in_another_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", lines(EXPECTED))
    write(tmp_path / "b.jsonl", lines(EXPECTED[1:]))
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: the id 'q2' is used before"):
        read(tmp_path)


BROKEN: dict[str, dict[str, object]] = {
    "without an answer": {"answers": []},
    "with a list for an id": {"id": [1]},
    "with a number for a question": {"question": 7},
    "with answers in a text": {"answers": "Oslo"},
    "with an answer beside its offset": {"answers": {"text": ["Oslo"], "answer_start": [OSLO + 1]}},
}


@pytest.mark.parametrize("name", ["t.json", "t.jsonl"])
def test_all_faults_of_a_file_are_reported_together(tmp_path: Path, name: str) -> None:
    good = flat(numbered(len(BROKEN), 0))
    rows = [row | {"id": f"bad{i}"} | change for i, (row, change) in enumerate(zip(good, BROKEN.values(), strict=True))]
    rows += [flat(numbered(1, 0))[0], flat(numbered(1, 0))[0], rows[0] | {"id": "bad8"}]
    content = "".join(json.dumps(row) + "\n" for row in rows) if name == "t.jsonl" else rows
    path = write(tmp_path / name, content)
    word = "line" if name == "t.jsonl" else "row"
    with pytest.raises(DataError) as error:
        read(path, offsets=True)
    message = str(error.value)
    row = '{"id": …, "question": …, "context": …, "answers": {"text": […], "answer_start": […]}}'
    assert message == (
        f"7 rows can't be used: {path}, {word} 1 (id bad0): the question has no answer; "
        f"{word} 2: the id is a list; "
        f'{word} 3 (id bad2): "question" is a number, not a text; '
        f'{word} 4 (id bad3): "answers" has another shape; '
        f"{word} 5 (id bad4): an answer's text is not at its answer_start: 'Oslo', but 'slo ' is at {OSLO + 1} "
        f"(the text is at {OSLO}); "
        f"{word} 7: the id 'q0' is used before; "
        f"{word} 8 (id bad8): the question has no answer. "
        "Set version_2_with_negative to True if the data has questions that the context does not answer, otherwise "
        "remove the question; give every question a text or a whole number as its id, or leave all ids out; rows look "
        f"like {row}; count answer_start in characters of the context as it is in the file (not in bytes, and "
        "before any change of white space or line ends); give every question its own id."
    )
    assert "\n" not in message
    with pytest.raises(DataError, match=r"^6 rows can't be used"):  # evaluation does not check offsets
        read(path)


def test_check_after_partial_reading_covers_the_rows_read(tmp_path: Path) -> None:
    rows = [*flat(numbered(4, 0)), {"id": "", "question": "later"}]
    rows[1]["id"] = "q0"
    reader = QuestionReader(write(tmp_path / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert [example.id for example in islice(reader, 1)] == ["q0"]
    reader.check()
    reader = QuestionReader(tmp_path / "t.jsonl")
    assert len(list(islice(reader, 2))) == 1, "the reader must yield no question after a fault"
    with pytest.raises(DataError, match="line 2: the id 'q0' is used before"):
        reader.check()


def test_misplaced_answers_are_skipped_and_listed(tmp_path: Path) -> None:
    examples = read(write(tmp_path / "t.jsonl", lines(numbered(20, wrong=2))))
    answers = AnswerCheck()
    assert list(answers.kept(examples)) == examples[2:]
    answers.check()
    assert answers.note() == (
        "2 questions skipped, whose answer is not at its answer_start: "
        f"{tmp_path}/t.jsonl, line 1 (id q0), line 2 (id q1), the first 'Oslo', but 'slo ' is at {OSLO + 1} (the "
        f"text is at {OSLO})"
    )
    one = AnswerCheck()
    assert list(one.kept(examples[:1])) == []
    assert one.note().startswith("1 question skipped, whose answer is not at its ")


@pytest.mark.parametrize(
    ("count", "wrong", "all_read", "message"),
    [
        (20, 2, True, None),
        (
            20,
            5,
            True,
            r"^In train 5 of 20 questions have an answer whose text is not .*: count answer_start in characters",
        ),
        (20, 5, True, r"\(id q4\)\), the first 'Oslo', but "),
        (20, 13, True, r"\(id q9\); and 3 more\), the first"),
        (12, 10, False, None),  # ten misplaced answers are too few before all are read
        (12, 11, False, "In train 11 of 12 questions"),
    ],
)
def test_too_many_misplaced_answers_are_refused(count: int, wrong: int, all_read: bool, message: str | None) -> None:
    answers = AnswerCheck("train")
    list(answers.kept(numbered(count, wrong)))
    with pytest.raises(DataError, match=message) if message else nullcontext():
        answers.check(all_read=all_read)


@pytest.mark.parametrize(
    "answer",
    [
        Answer("Oslo", -1),
        Answer("Oslo", len(CONTEXT)),
        Answer("", 0),
        Answer("oslo", OSLO),
        Answer("Oslo", len(CONTEXT[:OSLO].encode())),
        Answer("end.", len(CONTEXT) - 4 - len(CONTEXT)),
    ],
    ids=["negative", "after-the-end", "empty", "case", "bytes", "from-the-end"],
)
def test_misplaced_answers_are_recognised(answer: Answer) -> None:
    wrong = Example("wrong", "Which?", CONTEXT, (answer,))
    assert list(AnswerCheck().kept([*numbered(10, 0), wrong])) == numbered(10, 0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer("jane roe", 4), "'jane roe', but 'Jane Roe' is at 4 (the text is not in the context)"),
        (Answer("Jane Roe", 5), "'Jane Roe', but 'ane Roe ' is at 5 (the text is at 4)"),
        (
            Answer("John", 99),
            "'John', but the context has 16 characters and nothing at 99 (the text is not in the context)",
        ),
    ],
)
def test_misplacement_shows_the_text_at_the_offset(answer: Answer, message: str) -> None:
    assert misplacement(answer, "By  Jane Roe now") == message
