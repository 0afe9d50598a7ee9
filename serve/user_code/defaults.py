"""The default for each function that a user's handler does not define, as in Hugging Face's inference toolkit.

A body is decoded to JSON values or rows; SageMaker's own toolkit would make an array of it. Nothing is unpickled.
"""

import csv
import inspect
import io
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from berth.runtime.engines import choose
from berth.runtime.engines.choose import EngineSettings, LoadedModel
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.pipeline import QuestionAnsweringPipeline
from berth.serve.questions.codecs import CSV, JSON, JSON_LINES, best_of, check_charset, split, text_of
from berth.serve.questions.csv_questions import read_rows
from berth.serve.questions.json_text import decode, dump, encode

log = logging.getLogger(__name__)

NPY = "application/x-npy"
_COLUMN_NAMES = {"question", "context", "inputs"}


def _records(data: Any) -> Any:
    """A list of `{"inputs": …}` as a list of the inputs, rows of one column as a list of their cells; else `data`."""
    if not isinstance(data, list) or not data:
        return data
    if all(isinstance(each, dict) and each.keys() == {"inputs"} for each in data):
        return [each["inputs"] for each in data]
    if all(isinstance(each, list) and len(each) == 1 and isinstance(each[0], str) for each in data):
        return [each[0] for each in data]
    return data


def decode_body(body: bytes, content_type: str) -> Any:
    """A body's value: JSON as it is, JSON lines as a list, .npy as an array, CSV as a list of rows, or as
    `{"inputs": …}` if its first row has column names. ServeError (400, 415) if it can't be read.
    """
    media_type, parameters = split(content_type)
    if media_type == NPY:
        return _array(body)
    if media_type not in _READERS:
        known = ", ".join(_WRITERS)
        raise ServeError(
            Kind.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type `{media_type[:80]}` can't be read: send one of {known}, or write an input_fn that reads it",
        )
    check_charset(parameters)
    text = text_of(body, blank=True)
    if not text.strip():
        raise ServeError(Kind.BAD_REQUEST, "the body is empty: send some data")
    return _READERS[media_type](text)


def _lines(text: str) -> list[Any]:
    return [decode(line, "the line") for line in text.split("\n") if line.strip()]


def encode_prediction(prediction: Any, accept: str) -> tuple[bytes, str]:
    """Write a prediction (JSON values, arrays, tensors, or a generator of these) in the accepted type; returns it and
    its type. ServeError (406) if the type is unknown or can't express the prediction.
    """
    media_type = best_of(accept, [*_WRITERS])
    if media_type is None:
        known = ", ".join(_WRITERS)
        sentence = f"Accept `{accept[:80]}` can't be written: accept one of {known}, or write an output_fn"
        raise ServeError(Kind.NOT_ACCEPTABLE, sentence)
    if isinstance(prediction, bytes | bytearray):
        return bytes(prediction), media_type
    return _WRITERS[media_type](list(prediction) if inspect.isgenerator(prediction) else prediction), media_type


class DefaultHandler:
    """The default functions, with the names of a handler's."""

    def __init__(self, settings: EngineSettings, limits: RequestLimits) -> None:
        self._settings = settings
        self._limits = limits
        self.loaded: LoadedModel | None = None
        """Our model, once `model_fn` was called."""
        self.input_fn = decode_body
        self.output_fn = encode_prediction

    def model_fn(self, model_dir: str | Path) -> QuestionAnsweringPipeline:
        """Load our model from `model_dir`; ModelFilesError if it can't be served."""
        self.loaded = choose.load(Path(model_dir), self._settings, log.info)
        return QuestionAnsweringPipeline(self.loaded, self._limits)

    def predict_fn(self, data: Any, model: Any) -> Any:
        """Call `model` with the body's `inputs` and `parameters`, or with the whole body if it has no `inputs`."""
        if not callable(model):
            raise TypeError("what model_fn returned can't be called: write a predict_fn that uses it")
        data = _records(data)
        if not isinstance(data, dict):
            return model(data)
        inputs = data.pop("inputs", None)
        parameters = data.pop("parameters", None) or {}
        arguments = data if inputs is None else inputs
        if isinstance(model, QuestionAnsweringPipeline) and isinstance(parameters, dict):
            return model.answer(arguments, parameters)
        return model(arguments, **parameters)


def accepted_type(accept: str | None, default: str | None) -> str:
    """The single type that a function gets as `accept`, because handlers compare it with names.

    If the client names one type, that type as it is written. For a list, wildcards or weights, the first one that we
    can write, else the first one in the header. Without a header, `default`, else JSON.
    """
    first = default or JSON
    if not accept or not accept.strip():
        return first
    types = [split(part) for part in accept.split(",")]
    if len(types) == 1 and "*" not in types[0][0] and "q" not in types[0][1]:
        return accept.strip()
    return best_of(accept, [first, *(each for each in _WRITERS if each != first)]) or types[0][0]


def _array(body: bytes) -> Any:
    try:
        return np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)
    except (ValueError, MemoryError, OverflowError) as error:
        raise ServeError(Kind.BAD_REQUEST, f"the body is not an array in NumPy's format ({error})") from error


def _rows(text: str) -> Any:
    rows: list[list[str]] = []
    for row in read_rows(text, RequestLimits(tokens=sys.maxsize)):
        if isinstance(row, ServeError):
            raise row
        rows.append(row)
    if not rows:
        raise ServeError(Kind.BAD_REQUEST, "the body is empty: send a row of CSV")
    names = [name.strip() for name in rows[0]]
    if not _COLUMN_NAMES & {name.lower() for name in names}:
        return rows
    named = [dict(zip(names, row, strict=False)) for row in rows[1:]]
    return {"inputs": [row["inputs"] for row in named] if "inputs" in names else named}


_READERS: Mapping[str, Callable[[str], Any]] = {
    JSON: lambda text: decode(text, "the body"),
    JSON_LINES: _lines,
    CSV: _rows,
}


def _plain(value: Any) -> Any:
    """Converts values for json.dumps: an array or tensor to lists, a NumPy number to a number."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(
        f"a value of the type {type(value).__name__} can't be written as JSON: return lists, numbers, strings or arrays"
    )


def _text(value: Any) -> str:
    try:
        return dump(value, _plain)
    except ValueError as error:
        raise ValueError(f"the prediction can't be written as JSON ({error})") from error


def _json_lines(value: Any) -> bytes:
    lines = value if isinstance(value, list | tuple) else [value]
    return encode("".join(f"{_text(line)}\n" for line in lines))


def _csv(value: Any) -> bytes:
    rows = value.tolist() if hasattr(value, "tolist") else value
    rows = rows if isinstance(rows, list | tuple) else [rows]
    text = io.StringIO(newline="")
    if rows and all(isinstance(row, Mapping) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = csv.DictWriter(text, names, lineterminator="\r\n")
        table.writeheader()
        table.writerows(rows)
    else:
        lines = [row if isinstance(row, Sequence) and not isinstance(row, str) else [row] for row in rows]
        csv.writer(text, lineterminator="\r\n").writerows(lines)
    return encode(text.getvalue())


def _npy(value: Any) -> bytes:
    stream = io.BytesIO()
    try:
        np.save(stream, np.asarray(value), allow_pickle=False)
    except ValueError as error:
        raise ServeError(Kind.NOT_ACCEPTABLE, f"the prediction is not an array of numbers: accept `{JSON}`") from error
    return stream.getvalue()


_WRITERS: Mapping[str, Callable[[Any], bytes]] = {
    JSON: lambda value: encode(_text(value)),
    JSON_LINES: _json_lines,
    CSV: _csv,
    NPY: _npy,
}
