"""Opens data files and walks their rows: one mapping per question, with the place where it stands, counted from 1.

Layouts, recognised by the file's name and by what is in it:

* `.json`: the official SQuAD layout, `{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, …}]}]}]}`; flat rows,
  `{"data": [{"id", "question", "context", "answers"}, …]}`, the bare list or one row alone; or JSON lines under this
  name, which is what `datasets.Dataset.to_json` writes;
* `.jsonl`: one flat row per line;
* `.parquet`: one flat row per row (needs pyarrow, which only the training image has).

`.gz` and `.xz` may follow `.json` and `.jsonl`. A row that is none is a Fault among the rows, and reading goes on.
Whether a row is a good question is squad.py's business.
"""

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from berth.qa.faults import DataError, Fault, Where

LAYOUT = '{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": …}]}]}]}'
NOT_JSON = "not JSON"
ROW = '{"id": …, "question": …, "context": …, "answers": {"text": […], "answer_start": […]}}'


LIKE_ROWS = f"rows look like {ROW}"
LIKE_QUESTIONS = (
    'questions look like {"id": …, "question": …, "answers": [{"text": …, "answer_start": …}]}, in the "qas" of a '
    'paragraph with its "context"'
)


_ARTICLE = "article"


def like(where: Where) -> str:
    """What a good question looks like in the layout in which one stands there."""
    return LIKE_QUESTIONS if where.place.startswith(_ARTICLE) else LIKE_ROWS


class Row(NamedTuple):
    """One question as the file has it."""

    where: Where
    fields: Mapping[str, Any]


def find(path: Path) -> list[Path]:
    """The data files of `path`: itself, or those below a folder, sorted by name; hidden ones are left out.

    Raises DataError where there is nothing to read.
    """
    if path.is_file():
        if _kind(path) is None:
            raise DataError(f"{path} is no data file by its name: it must end in {_SUFFIXES}.")
        return [path]
    if not path.is_dir():
        raise DataError(f"{path} does not exist: pass a data file, or a folder that holds some ({_SUFFIXES}).")
    below = [p for p in sorted(path.rglob("*")) if p.is_file()]
    below = [p for p in below if not any(part.startswith(".") for part in p.relative_to(path).parts)]
    arrow = [p for p in below if p.suffix == ".arrow"]
    if arrow:  # Dataset.save_to_disk, whose state.json and dataset_info.json are no data
        raise DataError(f"{arrow[0]} is an Arrow file of datasets' save_to_disk: save it with to_parquet or to_json.")
    files = [p for p in below if _kind(p) is not None]
    if not files:
        there = ", ".join(p.name for p in below[:3]) or "nothing"
        raise DataError(f"{path} holds no data file ({_SUFFIXES}), it holds {there}: put the SQuAD file there.")
    return files


def rows(path: Path) -> Iterator[Row | Fault]:
    """Every question of the data file `path`, in its order. Raises DataError when it can't be read as data at all."""
    kind = _kind(path)
    if kind == ".parquet":
        yield from _parquet_rows(path)
        return
    text = _text(path)
    if not text.strip():
        layout = f"rows, one a line, like {ROW}" if kind == ".jsonl" else f"a file in SQuAD's layout, {LAYOUT}"
        raise DataError(f"{path} is empty: pass {layout}.")
    if kind == ".jsonl":
        yield from _line_rows(path, text)
        return
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and text.lstrip().startswith("{"):
            yield from _line_rows(path, text)
            return
        raise DataError(
            f"{path} is not JSON, line {error.lineno} column {error.colno}: {error.msg}; fix or replace the file."
        ) from None
    yield from _json_rows(path, content)


_TEXT_KINDS = (".json", ".jsonl")
_PACKINGS = (".gz", ".xz")
_SUFFIXES = ".json, .jsonl (also with .gz or .xz) or .parquet"


def _kind(path: Path) -> str | None:
    """`.json`, `.jsonl` or `.parquet`, without the packing; None for any other file."""
    name = path.name.lower()
    for packing in _PACKINGS:
        if name.endswith(packing):
            inner = Path(name.removesuffix(packing)).suffix
            return inner if inner in _TEXT_KINDS else None
    suffix = Path(name).suffix
    return suffix if suffix in (*_TEXT_KINDS, ".parquet") else None


def _text(path: Path) -> str:
    """The unpacked text, a byte order mark taken off."""
    packing = path.suffix.lower()
    try:
        data = path.read_bytes()
        if packing == ".gz":
            data = gzip.decompress(data)
        elif packing == ".xz":
            data = lzma.decompress(data)
        return data.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} can't be read ({error}): copy or download it again.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}): save it as UTF-8.") from None


def _json_rows(path: Path, content: object) -> Iterator[Row | Fault]:
    if isinstance(content, dict) and "question" in content and "context" in content:
        yield Row(Where(path, "row 1"), content)
        return
    data = content.get("data") if isinstance(content, dict) else content
    if not isinstance(data, list):
        raise DataError(f'{path} is not SQuAD, it has no list "data": the layout is {LAYOUT}, or rows like {ROW}.')
    for i, entry in enumerate(data, start=1):
        if isinstance(entry, dict) and "paragraphs" in entry:
            yield from _article_rows(path, f"{_ARTICLE} {i}", entry)
        else:
            yield _row(Where(path, f"row {i}"), entry)


def _article_rows(path: Path, in_article: str, article: Mapping[str, Any]) -> Iterator[Row | Fault]:
    paragraphs = article["paragraphs"]
    if not isinstance(paragraphs, list):
        yield _misfit(Where(path, in_article), 'it has no list "paragraphs"')
        return
    for i, paragraph in enumerate(paragraphs, start=1):
        in_paragraph = f"{in_article}, paragraph {i}"
        if not isinstance(paragraph, dict):
            yield _misfit(Where(path, in_paragraph), "it is no JSON object")
        elif "context" not in paragraph:
            yield _misfit(Where(path, in_paragraph), 'the paragraph has no "context"')
        elif not isinstance(paragraph.get("qas"), list):
            yield _misfit(Where(path, in_paragraph), 'it has no list "qas"')
        else:
            for j, question in enumerate(paragraph["qas"], start=1):
                row = _row(Where(path, f"{in_paragraph}, question {j}"), question)
                if isinstance(row, Row):
                    row = Row(row.where, {**row.fields, "context": paragraph["context"]})
                yield row


def _line_rows(path: Path, text: str) -> Iterator[Row | Fault]:
    # Not splitlines(): JSON strings may hold U+2028 and other characters that it takes for a line's end.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = Where(path, f"line {number}")
        try:
            yield _row(where, json.loads(line))
        except json.JSONDecodeError as error:
            yield Fault(where, "", f"{NOT_JSON} ({error.msg})", LIKE_ROWS)


def _parquet_rows(path: Path) -> Iterator[Row | Fault]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{path} is Parquet, which needs pyarrow: install it, or save the data as .jsonl.") from None
    try:
        with parquet.ParquetFile(path) as file:
            number = 1
            for batch in file.iter_batches(batch_size=1000):
                for fields in batch.to_pylist():
                    yield Row(Where(path, f"row {number}"), fields)
                    number += 1
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} can't be read as Parquet ({reason}): copy or download it again.") from None


def _row(where: Where, value: object) -> Row | Fault:
    return Row(where, value) if isinstance(value, dict) else _misfit(where, "it is no JSON object")


def _misfit(where: Where, what: str) -> Fault:
    return Fault(where, "", f"not SQuAD, {what}", f"the layout is {LAYOUT}, or rows like {ROW}")
