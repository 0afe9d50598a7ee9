"""Reads data files row by row: one mapping per question, with its place in the file, counted from 1.

Layouts, recognised by the file's name and content:

* `.json`: the official SQuAD layout, `{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, …}]}]}]}`; flat rows,
  `{"data": [{"id", "question", "context", "answers"}, …]}`, only the list, or a single row; or JSON lines under this
  name, as written by `datasets.Dataset.to_json`;
* `.jsonl`: one flat row per line;
* `.parquet`: one flat row per row (needs pyarrow, which only the training image has).

`.gz` and `.xz` may follow `.json` and `.jsonl`. An invalid row becomes a Fault, and reading continues. squad.py checks
whether a row is a valid question.
"""

import gzip
import json
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
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

METADATA = frozenset(
    f"{stem}.json"
    for stem in (
        *("config", "croissant", "datapackage", "dataset_dict", "dataset_info", "dataset_infos", "info", "license"),
        *("manifest", "meta", "metadata", "readme", "schema", "state", "statistics", "stats"),
    )
)
"""Names of files without questions that tools write next to data; read only if there is no other file."""
_ARTICLE = "article"


def like(where: Where) -> str:
    """An example of a question in the layout of this place."""
    return LIKE_QUESTIONS if where.place.startswith(_ARTICLE) else LIKE_ROWS


class Row(NamedTuple):
    """One question as the file has it."""

    where: Where
    fields: Mapping[str, Any]


class FolderFiles(NamedTuple):
    """The files of a folder except hidden ones: `data`, and `others` whose names are not those of data."""

    data: list[Path]
    others: list[Path]


def find(path: Path) -> FolderFiles:
    """The data files of `path`: itself, or those below a folder, sorted by name.

    Raises DataError if there are none.
    """
    if path.is_file():
        if _kind(path) is None:
            raise DataError(f"{path} is not a data file: its name must end in {_SUFFIXES}.")
        return FolderFiles([path], [])
    if not path.is_dir():
        raise DataError(f"{path} does not exist: pass a data file, or a folder that holds some ({_SUFFIXES}).")
    below = [p for p in sorted(path.rglob("*")) if p.is_file()]
    below = [p for p in below if not any(part.startswith(".") for part in p.relative_to(path).parts)]
    arrow = [p for p in below if p.suffix == ".arrow"]
    if arrow:  # of Dataset.save_to_disk, whose state.json and dataset_info.json are not data
        raise DataError(f"{arrow[0]} is an Arrow file of datasets' save_to_disk: save it with to_parquet or to_json.")
    data = [p for p in below if _kind(p) is not None]
    if not data:
        names = ", ".join(p.name for p in below[:3]) or "nothing"
        raise DataError(f"{path} holds no data file ({_SUFFIXES}), it holds {names}: put the SQuAD file there.")
    questions = [p for p in data if p.name.lower() not in METADATA] or data
    return FolderFiles(questions, [p for p in below if p not in questions])


def rows(path: Path) -> Iterator[Row | Fault]:
    """The rows of a data file, in order. JSON lines and Parquet are read in parts, other JSON as a whole.

    Raises DataError if the file, or the rest of it, can't be read.
    """
    kind = _kind(path)
    if kind == ".parquet":
        yield from _parquet_rows(path)
    elif kind == ".jsonl":
        yield from _line_rows(path, _lines(path))
    else:
        yield from _json_rows(path)


_TEXT_KINDS = (".json", ".jsonl")
_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
_COLUMNS = ("question", "context")
_MORE_COLUMNS = ("id", "answers", "is_impossible")
_CHUNK = 1 << 20
"""Bytes to read at a time."""
_MEMORY_PER_BYTE = 8
"""The most bytes per byte of a JSON file while it is parsed, as text and in Python's objects."""
_TOO_MANY_DIGITS = "a number has too many digits"
"""Python reads whole numbers of up to 4300 digits (sys.set_int_max_str_digits)."""
_SUFFIXES = ".json, .jsonl (also with .gz or .xz) or .parquet"


def _kind(path: Path) -> str | None:
    """`.json`, `.jsonl` or `.parquet`, without the packing; None for any other file."""
    name = path.name.lower()
    for packing in _OPENERS:
        if name.endswith(packing):
            inner = Path(name.removesuffix(packing)).suffix
            return inner if inner in _TEXT_KINDS else None
    suffix = Path(name).suffix
    return suffix if suffix in (*_TEXT_KINDS, ".parquet") else None


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """The unpacked content of a text file. Raises DataError if the file can't be read or unpacked."""
    try:
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            yield file
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path} can't be read ({error}): copy or download it again.") from None


def _text(path: Path, data: bytes | bytearray, place: str) -> str:
    """The text of bytes that begin at `place` in the file, without byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({place}byte {error.start}): save it as UTF-8.") from None


def _lines(path: Path) -> Iterator[str]:
    with _reading(path) as file:
        for number, line in enumerate(file, start=1):
            yield _text(path, line, f"line {number}, ")


def _json_rows(path: Path) -> Iterator[Row | Fault]:
    text = _whole_text(path)
    if not text.strip():
        raise DataError(f"{path} is empty: pass a file in SQuAD's layout, {LAYOUT}.")
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and text.lstrip().startswith("{"):
            # Not splitlines(), which also splits at U+2028 and other characters that JSON strings may contain.
            yield from _line_rows(path, text.split("\n"))
            return
        place = f"line {error.lineno} column {error.colno}"
        raise DataError(f"{path} is not JSON, {place}: {error.msg}; fix or replace the file.") from None
    except ValueError:
        raise DataError(f"{path} is not JSON: {_TOO_MANY_DIGITS}; fix or replace the file.") from None
    except RecursionError:
        raise DataError(f"{path} is not SQuAD, it is nested too deeply: the layout is {LAYOUT}.") from None
    del text
    entries = content.get("data") if isinstance(content, dict) else content
    if isinstance(entries, list):
        for number, entry in enumerate(entries, start=1):
            yield from _entry_rows(path, number, entry)
    elif isinstance(content, dict) and "question" in content and "context" in content:
        yield Row(Where(path, "row 1"), content)
    else:
        raise DataError(
            f'{path} is not SQuAD, it has no list "data": the layout is {LAYOUT}, or rows like {ROW}; remove a file '
            "without questions."
        )


def _whole_text(path: Path) -> str:
    """The text of a file that is parsed as a whole. Raises DataError if that needs more memory than there is."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    data = bytearray()
    with _reading(path) as file:
        while chunk := file.read(_CHUNK):
            data += chunk
            if len(data) * _MEMORY_PER_BYTE > memory:
                raise DataError(
                    f"{path} is too large to be read as a whole with {memory / 1e9:.0f} GB of memory: save the data as "
                    ".jsonl or .parquet, which are read row by row."
                )
    return _text(path, data, "")


def _entry_rows(path: Path, number: int, entry: object) -> Iterator[Row | Fault]:
    """The rows of an article, or the flat row."""
    if not isinstance(entry, dict) or "paragraphs" not in entry:
        yield _row(Where(path, f"row {number}"), entry)
    elif not isinstance(entry["paragraphs"], list):
        yield _misfit(Where(path, f"{_ARTICLE} {number}"), 'it has no list "paragraphs"')
    else:
        for i, paragraph in enumerate(entry["paragraphs"], start=1):
            yield from _paragraph_rows(path, f"{_ARTICLE} {number}, paragraph {i}", paragraph)


def _paragraph_rows(path: Path, in_paragraph: str, paragraph: object) -> Iterator[Row | Fault]:
    if not isinstance(paragraph, dict):
        yield _misfit(Where(path, in_paragraph), "it is not a JSON object")
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


def _line_rows(path: Path, lines: Iterable[str]) -> Iterator[Row | Fault]:
    empty = True
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        empty = False
        where = Where(path, f"line {number}")
        try:
            yield _row(where, json.loads(line))
        except json.JSONDecodeError as error:
            yield Fault(where, "", f"{NOT_JSON} ({error.msg})", LIKE_ROWS)
        except ValueError:
            yield Fault(where, "", f"{NOT_JSON} ({_TOO_MANY_DIGITS})", LIKE_ROWS)
        except RecursionError:
            yield _misfit(where, "it is nested too deeply")
    if empty:
        raise DataError(f"{path} is empty: pass rows, one a line, like {ROW}.")


def _parquet_rows(path: Path) -> Iterator[Row | Fault]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(f"{path} is Parquet, which needs pyarrow: install it, or save the data as .jsonl.") from None
    try:
        # Read, not mapped: a channel in FastFile mode can't be mapped.
        with parquet.ParquetFile(path, memory_map=False, buffer_size=_CHUNK) as file:
            columns = file.schema_arrow.names
            if missing := [name for name in _COLUMNS if name not in columns]:
                raise DataError(
                    f"{path} has no column {' or '.join(missing)}, only {', '.join(columns) or 'none at all'}: "
                    f"{LIKE_ROWS}."
                )
            wanted = [name for name in (*_COLUMNS, *_MORE_COLUMNS) if name in columns]
            number = 1
            for batch in file.iter_batches(batch_size=250, columns=wanted):
                for fields in batch.to_pylist():
                    yield Row(Where(path, f"row {number}"), fields)
                    number += 1
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path} can't be read as Parquet ({reason}): copy or download it again.") from None


def _row(where: Where, value: object) -> Row | Fault:
    return Row(where, value) if isinstance(value, dict) else _misfit(where, "it is not a JSON object")


def _misfit(where: Where, what: str) -> Fault:
    return Fault(where, "", f"not SQuAD, {what}", f"the layout is {LAYOUT}, or rows like {ROW}")
