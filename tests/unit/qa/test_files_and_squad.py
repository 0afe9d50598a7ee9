"""Tests reading of data files in all layouts, and the errors with file, place and advice."""

import gzip
import json
import lzma
import os
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

from berth.qa import files
from berth.qa.answers import UNKNOWN, misplacement
from berth.qa.squad import Answer, AnswerCheck, DataError, Example, QuestionReader, read

CONTEXT = "Emoji 👩‍💻 and cafe\u0301:\r\n Oslo is in Norway.\u2028The end."
OSLO = CONTEXT.index("Oslo")
NORWAY = CONTEXT.index("Norway")
EXPECTED = [
    Example("q1", "Which city?", CONTEXT, (Answer("Oslo", OSLO), Answer("Oslo is", OSLO))),
    Example("q2", "Which country?", CONTEXT, (Answer("Norway", NORWAY),)),
]


def official(examples: list[Example]) -> dict[str, object]:
    return {
        "version": "1.1",
        "data": [
            {
                "title": "Oslo",
                "paragraphs": [
                    {
                        "context": example.context,
                        "qas": [
                            {
                                "id": example.id,
                                "question": example.question,
                                "answers": [{"text": a.text, "answer_start": a.start} for a in example.answers],
                            }
                        ],
                    }
                    for example in examples
                ],
            }
        ],
    }


def flat(examples: list[Example]) -> list[dict[str, object]]:
    return [
        {
            "id": e.id,
            "title": "Oslo",
            "question": e.question,
            "context": e.context,
            "answers": {"text": [a.text for a in e.answers], "answer_start": [a.start for a in e.answers]},
        }
        for e in examples
    ]


def lines(examples: list[Example], ascii_only: bool = False) -> str:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in flat(examples))


def write(path: Path, content: object) -> Path:
    """Write text, JSON or table rows in the format of the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(content if isinstance(content, arrow.Table) else arrow.Table.from_pylist(content), path)
        return path
    data = (content if isinstance(content, str) else json.dumps(content)).encode()
    packing = {".gz": gzip.compress, ".xz": lzma.compress}.get(path.suffix)
    path.write_bytes(packing(data) if packing else data)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("train.json", official(EXPECTED), id="official"),
        pytest.param("train.json.xz", official(EXPECTED), id="official-xz"),
        pytest.param("train.json.gz", official(EXPECTED), id="official-gz"),
        pytest.param("train.json", "\ufeff" + json.dumps(official(EXPECTED)), id="byte-order-mark"),
        pytest.param("train.JSON", {"data": flat(EXPECTED)}, id="flat"),
        pytest.param("train.json", flat(EXPECTED), id="bare-list"),
        pytest.param("train.json", lines(EXPECTED), id="lines-called-json"),
        pytest.param("train.jsonl", lines(EXPECTED), id="lines"),
        pytest.param("train.jsonl", lines(EXPECTED, ascii_only=True), id="lines-escaped"),
        pytest.param("train.jsonl.gz", lines(EXPECTED).replace("\n", "\r\n\r\n"), id="lines-crlf-gz"),
        pytest.param("train.parquet", flat(EXPECTED), id="parquet"),
    ],
)
def test_every_layout_gives_the_same_examples(tmp_path: Path, name: str, content: object) -> None:
    assert read(write(tmp_path / name, content)) == EXPECTED


def test_json_larger_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 50)
    assert read(write(tmp_path / "t.jsonl", lines(EXPECTED))) == EXPECTED
    with pytest.raises(DataError, match=r"t\.json is too large .*: save the data as \.jsonl or \.parquet"):
        read(write(tmp_path / "t.json", official(EXPECTED)))


def test_folder_is_read_without_hidden_and_other_files(tmp_path: Path) -> None:
    write(tmp_path / "b" / "2.jsonl", lines(EXPECTED[1:]))
    write(tmp_path / "a.parquet", flat(EXPECTED[:1]))
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / "_SUCCESS").touch()
    write(tmp_path / ".ipynb_checkpoints" / "a.json", "broken")
    for metadata in ("dataset_infos.json", "b/state.json", "LICENSE"):
        write(tmp_path / metadata, {"description": "SQuAD"})
    assert read(tmp_path) == EXPECTED
    others = [str(path.relative_to(tmp_path)) for path in files.find(tmp_path).others]
    assert others == ["LICENSE", "README.md", "_SUCCESS", "b/state.json", "dataset_infos.json"]


def test_file_named_like_metadata_is_read_if_it_is_alone(tmp_path: Path) -> None:
    write(tmp_path / "state.json", official(EXPECTED))
    assert read(tmp_path) == EXPECTED


def test_single_row_is_read(tmp_path: Path) -> None:
    assert read(write(tmp_path / "train.json", flat(EXPECTED)[0])) == EXPECTED[:1]
    with pytest.raises(DataError, match=r't\.json, row 1 \(id q1\): "question" is missing'):
        read(write(tmp_path / "t.json", flat(EXPECTED)[0] | {"question": None}))


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
        pytest.param("t.jsonl", "\n \n", r"t\.jsonl is empty", id="blank-lines"),
        pytest.param("t.json", {"data": []}, r"t\.json has no question", id="no-questions"),
        pytest.param("t.json", official([]), r"t\.json has no question", id="no-paragraphs"),
        pytest.param("t.parquet", NO_ROWS, r"t\.parquet has no question", id="parquet-no-rows"),
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
        pytest.param("t.json", [ROW | {"context": " "}], r'"context" is empty', id="context-blank"),
        pytest.param("t.json", [ROW | {"context": 7}], r'"context" is a number, not a text', id="context-number"),
        pytest.param("t.json", [ROW | {"answers": "Oslo"}], r'"answers" has another shape', id="answers-text"),
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


def test_fault_names_a_type_that_json_does_not_have() -> None:
    reader = QuestionReader(Path("squad"), [ROW | {"question": b"who"}])
    assert list(reader) == []
    with pytest.raises(DataError, match='"question" is a bytes, not a text'):
        reader.check()


def test_repeated_id_in_another_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", lines(EXPECTED))
    write(tmp_path / "b.jsonl", lines(EXPECTED[1:]))
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: the id 'q2' is used before"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.json.xz", b"no xz", r"t\.json\.xz can't be read \(.*\): copy or download it again\."),
        ("t.json.xz", lzma.compress(b"[]" * 1000)[:-20], r"can't be read"),
        ("t.json.gz", b"no gz", r"can't be read"),
        ("t.json.gz", gzip.compress(b"[]" * 1000)[:-10], r"can't be read"),
        ("t.json", "é".encode("latin-1"), r"t\.json is not UTF-8 text \(byte 0\): save it as UTF-8"),
        ("t.json", b"[" + b" " * (1 << 20) + "é".encode()[:1] + b"]", r"is not UTF-8 text \(byte 1048577\)"),
        ("t.jsonl", b"{}\n" * 9 + b"{\xe9}\n", r"t\.jsonl is not UTF-8 text \(line 10, byte 1\): save it as UTF-8"),
        ("t.parquet", b"PAR1 not", r"t\.parquet can't be read as Parquet \(.*\): copy"),
        ("t.parquet", b"", r"t\.parquet can't be read as Parquet \(.*\): copy"),
        ("t.jsonl.gz", b"", r"t\.jsonl\.gz is empty: pass rows"),
    ],
    ids=[
        "xz",
        "cut-off-xz",
        "gz",
        "cut-off-gz",
        "latin-1",
        "late",
        "latin-1-line",
        "parquet",
        "parquet-0",
        "gz-0",
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_damaged_parquet_is_refused_or_readable(tmp_path: Path, compression: str) -> None:
    """The file is cut off, has another magic number, or wrong bytes inside."""
    path = tmp_path / "t.parquet"
    parquet.write_table(arrow.Table.from_pylist(flat(numbered(2000, 0))), path, compression=compression)
    good = path.read_bytes()
    damaged = [good[:cut] for cut in (3, 100, len(good) // 2, len(good) - 1)]
    damaged += [b"XXXX" + good[4:-4] + b"XXXX", b"\xff" * len(good)]
    for place in range(8, len(good) - 40, len(good) // 20):
        damaged.append(good[:place] + b"\xff" * 40 + good[place + 40 :])
    refused = []
    for data in damaged:
        path.write_bytes(data)
        try:
            read(path)
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > len(damaged) // 2
    assert all(str(path) in sentence and "\n" not in sentence for sentence in refused)


def test_parquet_without_needed_columns_lists_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", [{"text": "Oslo", "label": 1, "id": "q"}])
    with pytest.raises(DataError, match=r"t\.parquet has no column question or context, only text, label, id: ro"):
        read(path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"holds no data file \(.*\), it holds nothing: put"),
        (["model.bin"], r"it holds model\.bin: put the SQuAD file there"),
        (["state.json", "data-00000-of-00001.arrow"], r"Arrow file of datasets' save_to_disk: save it with to_parquet"),
    ],
    ids=["empty", "others", "save-to-disk"],
)
def test_folder_without_data_files_is_refused(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train does not exist: pass a data file"):
        read(tmp_path / "train")


def numbered(count: int, wrong: int) -> list[Example]:
    good = Answer("Oslo", OSLO)
    moved = Answer("Oslo", OSLO + 1)
    return [Example(f"q{i}", "Which?", CONTEXT, (good, moved if i < wrong else good)) for i in range(count)]


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


def refused(examples: list[Example], *, all_read: bool = True) -> str:
    """Why the answers of the data set `train` are refused; empty if they are not."""
    answers = AnswerCheck("train")
    list(answers.kept(examples))
    try:
        answers.check(all_read=all_read)
    except DataError as error:
        return str(error)
    return ""


def test_too_many_misplaced_answers_are_refused() -> None:
    message = refused(numbered(20, wrong=5))
    assert message.startswith("In train 5 of 20 questions have an answer whose text is not ")
    assert "(id q4)), the first 'Oslo', but " in message
    assert "(id q9); and 3 more), the first" in refused(numbered(20, wrong=13))
    assert ": count answer_start in characters" in message
    assert not refused(numbered(20, wrong=2))
    assert not refused(numbered(12, wrong=10), all_read=False), "ten misplaced answers are too few"
    assert refused(numbered(12, wrong=11), all_read=False)


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


def test_advice_shows_the_layout_of_the_file(tmp_path: Path) -> None:
    question = {"id": "q", "question": "Where?", "answers": "Oslo"}
    squad = {"data": [{"paragraphs": [{"context": "In Oslo.", "qas": [question]}]}]}
    with pytest.raises(DataError) as error:
        read(write(tmp_path / "t.json", squad))
    assert '"answers" has another shape; questions look like {"id": …, "question": …, "answers": [{' in str(error.value)
    assert "rows look like" not in str(error.value)
    with pytest.raises(DataError, match=r't\.jsonl is empty: pass rows, one a line, like \{"id": …, "question"'):
        read(write(tmp_path / "t.jsonl", ""))


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_memory_does_not_grow_with_the_number_of_rows(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads 7 MB of questions, all valid or all with a fault."""
    monkeypatch.setattr(files, "_CHUNK", 10_000)
    for change in ({}, {"question": ""}):
        rows = [row | change | {"context": CONTEXT * 20} for row in flat(numbered(6000, 0))]
        content = "".join(json.dumps(row) + "\n" for row in rows) if name == "t.jsonl" else rows
        reader = QuestionReader(write(tmp_path / name, content))
        tracemalloc.start()
        count = sum(1 for _ in reader)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == (0 if change else 6000)
        assert peak < (3_000_000 if name == "t.parquet" else 900_000), "too many rows in memory"
        with suppress(DataError):
            reader.check()


def test_ten_faults_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    rows = [row | {"answers": []} for row in flat(numbered(13, 0))]
    with pytest.raises(DataError) as error:
        read(write(tmp_path / "t.parquet", rows))
    message = str(error.value)
    assert message.startswith(f"13 rows can't be used: {tmp_path}/t.parquet, row 1 (id q0), row 2 (id q1), ")
    assert "row 10 (id q9): the question has no answer; and 3 more. Set version_2_with_negative" in message


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
