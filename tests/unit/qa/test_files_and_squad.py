"""Reading data files: every layout gives the same examples; every fault gives one sentence with file, place, remedy."""

import gzip
import json
import lzma
from pathlib import Path

import pyarrow as arrow
import pytest
from pyarrow import parquet

from berth.qa.squad import Answer, DataError, Example, check_answers, read

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
    """`content` as path's suffix wants it: text, JSON or table rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(arrow.Table.from_pylist(content), path)
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


def test_a_folder_is_read_file_by_file_without_hidden_and_other_files(tmp_path: Path) -> None:
    write(tmp_path / "b" / "2.jsonl", lines(EXPECTED[1:]))
    write(tmp_path / "a.parquet", flat(EXPECTED[:1]))
    (tmp_path / "README.md").write_text("not data")
    (tmp_path / "_SUCCESS").touch()
    write(tmp_path / ".ipynb_checkpoints" / "a.json", "broken")
    assert read(tmp_path) == EXPECTED


def test_one_row_alone(tmp_path: Path) -> None:
    assert read(write(tmp_path / "train.json", flat(EXPECTED)[0])) == EXPECTED[:1]
    with pytest.raises(DataError, match=r't\.json: the question has no "id"'):
        read(write(tmp_path / "t.json", flat(EXPECTED)[0] | {"id": None}))


def test_ids_may_be_numbers(tmp_path: Path) -> None:
    row = flat(EXPECTED[:1])[0] | {"id": 7}
    assert read(write(tmp_path / "t.jsonl", json.dumps(row)))[0].id == "7"


@pytest.mark.parametrize(
    "unanswerable",
    [
        {"answers": []},
        {"answers": [], "is_impossible": True, "plausible_answers": [{"text": "Oslo", "answer_start": OSLO}]},
        {"answers": {"text": [], "answer_start": []}},
        {"is_impossible": True},
    ],
    ids=["no-answers", "official", "flat", "impossible-alone"],
)
def test_version_2_reads_questions_without_answers(tmp_path: Path, unanswerable: dict[str, object]) -> None:
    path = write(tmp_path / "t.json", [{"id": "q1", "question": "Why?", "context": CONTEXT} | unanswerable])
    assert read(path, version_2_with_negative=True) == [Example("q1", "Why?", CONTEXT, ())]
    with pytest.raises(DataError, match=r"t\.json, \[0\]: question q1 has no answer; set version_2_with_negative"):
        read(path)


ROW = flat(EXPECTED)[0]
HALF = lines(EXPECTED, ascii_only=True).replace("\\ud83d\\udc69", "\\ud83d", 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("t.json", "", r"t\.json is empty: pass a file", id="empty"),
        pytest.param("t.jsonl", "\n \n", r"t\.jsonl is empty", id="blank-lines"),
        pytest.param("t.json", {"data": []}, r"t\.json holds no question", id="no-questions"),
        pytest.param("t.json", official([]), r"t\.json holds no question", id="no-paragraphs"),
        pytest.param("t.parquet", [], r"t\.parquet holds no question", id="parquet-no-rows"),
        pytest.param("t.json", '{"data": [', r"t\.json is not JSON, line 1 column 11: .*; mend or", id="cut-off"),
        pytest.param("t.json", "42", r't\.json is not SQuAD, it has no list "data"', id="number"),
        pytest.param("t.json", {"text": "x"}, r'not SQuAD, it has no list "data": the layout is \{"data"', id="other"),
        pytest.param("t.json", {"data": ["x"]}, r"t\.json, data\[0\] is not SQuAD, it is no JSON object", id="strings"),
        pytest.param("t.json", {"data": [{"paragraphs": 1}]}, r'data\[0\] .* no list "paragraphs"', id="paragraphs"),
        pytest.param("t.json", {"data": [{"paragraphs": [{"qas": []}]}]}, r'paragraphs\[0\].* no "context"', id="ctx"),
        pytest.param("t.json", {"data": [{"paragraphs": [{"context": "x"}]}]}, r'no list "qas"', id="qas"),
        pytest.param("t.jsonl", lines(EXPECTED) + "{oops\n", r"t\.jsonl, line 3 is not JSON \(", id="broken-line"),
        pytest.param("t.jsonl", "[1]\n", r"t\.jsonl, line 1 is not SQuAD", id="line-no-object"),
        pytest.param(
            "t.jsonl", '{"id": "a"}\n', r'line 1: "question" is missing or empty; rows look', id="no-question"
        ),
        pytest.param("t.json", [ROW | {"id": None}], r'\[0\]: the question has no "id"; give every', id="id-null"),
        pytest.param("t.json", [ROW | {"id": ""}], r'the question has no "id"', id="id-empty"),
        pytest.param("t.json", [ROW | {"id": True}], r'the question has no "id"', id="id-bool"),
        pytest.param("t.json", [ROW | {"context": " "}], r'"context" is missing or empty', id="context-blank"),
        pytest.param("t.json", [ROW | {"answers": "Oslo"}], r'"answers" is missing or has another', id="answers-text"),
        pytest.param("t.json", [ROW | {"answers": None}], r'"answers" is missing or has another', id="answers-null"),
        pytest.param("t.json", [ROW | {"answers": {"text": ["a"], "answer_start": []}}], "another shape", id="lengths"),
        pytest.param("t.json", [ROW | {"answers": [{"text": "a"}]}], r'whole number "answer_start"', id="no-start"),
        pytest.param("t.json", [ROW | {"is_impossible": True}], r'"is_impossible" is true, yet', id="contradiction"),
        pytest.param("t.json", [ROW, ROW], r"\[1\]: the id 'q1' stands at .*t\.json, \[0\] too", id="duplicate"),
        pytest.param("t.jsonl", HALF, r'line 1: "context" holds half a character', id="surrogate"),
        pytest.param("t.txt", "x", r"t\.txt is no data file by its name: it must end in \.json", id="suffix"),
        pytest.param("t.arrow.xz", "x", r"t\.arrow\.xz is no data file", id="packed-suffix"),
    ],
)
def test_faults_are_refused_with_one_sentence(tmp_path: Path, name: str, content: object, message: str) -> None:
    table = arrow.Table.from_pylist(flat(EXPECTED)).slice(0, 0)
    path = tmp_path / name
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        write(path, content)
    with pytest.raises(DataError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_official_layout_names_the_place(tmp_path: Path) -> None:
    data = official(EXPECTED)
    del data["data"][0]["paragraphs"][1]["qas"][0]["id"]  # type: ignore[index]
    with pytest.raises(DataError, match=r't\.json, data\[0\]\.paragraphs\[1\]\.qas\[0\]: the question has no "id"'):
        read(write(tmp_path / "t.json", data))


def test_ids_are_unique_over_files(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", lines(EXPECTED))
    write(tmp_path / "b.jsonl", lines(EXPECTED[1:]))
    with pytest.raises(DataError, match=r"b\.jsonl, line 1: the id 'q2' stands at .*a\.jsonl, line 2 too"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("t.json.xz", b"no xz", r"t\.json\.xz can't be read \(.*\): copy or download it again\."),
        ("t.json.xz", lzma.compress(b"[]" * 1000)[:-20], r"can't be read"),
        ("t.json.gz", b"no gz", r"can't be read"),
        ("t.json.gz", gzip.compress(b"[]" * 1000)[:-10], r"can't be read"),
        ("t.json", "é".encode("latin-1"), r"t\.json is not UTF-8 text \(byte 0\): save it as UTF-8"),
        ("t.parquet", b"PAR1 not", r"t\.parquet can't be read as Parquet \(.*\): copy"),
    ],
    ids=["xz", "xz-cut", "gz", "gz-cut", "latin-1", "parquet"],
)
def test_broken_bytes_are_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"holds no data file \(.*\), it holds nothing: put"),
        (["model.bin"], r"it holds model\.bin: put the SQuAD file there"),
        (["state.json", "data-00000-of-00001.arrow"], r"Arrow file of datasets' save_to_disk: save it with to_parquet"),
    ],
    ids=["empty", "others", "save-to-disk"],
)
def test_a_folder_without_data_is_refused(tmp_path: Path, names: list[str], message: str) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train does not exist: pass a data file"):
        read(tmp_path / "train")


def numbered(count: int, wrong: int) -> list[Example]:
    good = Answer("Oslo", OSLO)
    moved = Answer("Oslo", OSLO + 1)
    return [Example(f"q{i}", "Which?", CONTEXT, (good, moved if i < wrong else good)) for i in range(count)]


def test_answers_beside_their_offsets_are_skipped_and_named() -> None:
    examples = numbered(20, wrong=2)
    assert check_answers(examples) == (examples[2:], ["q0", "q1"])


def test_too_many_answers_beside_their_offsets_are_refused() -> None:
    with pytest.raises(DataError, match=r"In train 5 of 20 questions \(q0, q1, q2, …\) have an answer whose text"):
        check_answers(numbered(20, wrong=5), "train")


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
    ids=["negative", "behind", "empty", "case", "bytes", "from-the-end"],
)
def test_what_counts_as_misplaced(answer: Answer) -> None:
    wrong = Example("wrong", "Which?", CONTEXT, (answer,))
    kept, skipped = check_answers([*numbered(10, 0), wrong])
    assert (len(kept), skipped) == (10, ["wrong"])


def test_questions_without_answers_are_kept() -> None:
    example = Example("q", "Why?", CONTEXT, ())
    assert check_answers([example]) == ([example], [])
    assert check_answers([]) == ([], [])
