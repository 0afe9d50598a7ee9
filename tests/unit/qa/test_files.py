"""Tests reading of data files in all layouts, and the errors of damaged files and wrong folders."""

import gzip
import json
import lzma
import os
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pyarrow as arrow
import pytest
from pyarrow import parquet

from berth.qa import files
from berth.qa.squad import DataError, QuestionReader, read
from tests.unit.qa.data_files import CONTEXT, EXPECTED, flat, lines, numbered, official, write


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
