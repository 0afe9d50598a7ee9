"""Checks the questions and parameters in the JSON value of a record, field by field.

    {"inputs": {"question": "…", "context": "…"}}                      one question → one answer
    {"inputs": [{…}, {…}], "parameters": {"top_k": 3}}                 a list → a list, in the same order
    {"question": "…", "context": "…"}                                  one question, with or without `parameters`

The parameters are those of transformers' former question-answering pipeline, with its defaults. ServeError
(400) names up to ten faults, each with its place, such as `inputs[2].context`.
"""

import difflib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, NamedTuple

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import BOUNDS
from berth.serve.questions import near_misses

SHOWN = 10
"""The most faults that an error names."""


class Question(NamedTuple):
    """One question over one context. Offsets of answers count Unicode code points of `context`, as Python does."""

    question: str
    context: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """How to answer. None means the default: windows of 384 tokens that share 128, or less with a small model."""

    top_k: int = 1  # answers per question; more than 1 makes each question's answer a list
    max_answer_len: int = 15  # tokens
    max_question_len: int = 64  # ignored, as the pipeline ignored it with fast tokenizers
    max_seq_len: int | None = None  # tokens of a window: question, context and special tokens
    doc_stride: int | None = None  # tokens that neighbouring windows share
    handle_impossible_answer: bool = False  # let "no answer" (an empty string at 0 to 0) compete
    align_to_words: bool = True  # widen an answer that begins or ends inside a word to the whole word


ALIASES = {"topk": "top_k"}  # older names, which the pipeline accepted too
_DEFAULTS = {field.name: field.default for field in fields(Parameters)}
_DEFAULTS |= {alias: _DEFAULTS[name] for alias, name in ALIASES.items()}
_EXAMPLE = f"send {near_misses.OBJECT}"
_LONGEST_KEY = 80
"""Characters of a key that are shown. A longer key is not compared with known names, because that takes about 100 times
its memory."""


@dataclass(frozen=True, slots=True)
class CheckedQuestions:
    """A record's questions, checked. `single`: `inputs` was one question, not a list, so the answer is not a list."""

    questions: tuple[Question, ...]
    single: bool
    parameters: Parameters


def parse(value: Any) -> CheckedQuestions:
    """The questions in a decoded JSON value; ServeError (400) with up to ten faults."""
    faults = list(islice(_body_faults(value), SHOWN + 1))
    if faults:
        rest = ["and more"] if len(faults) > SHOWN else []
        raise ServeError(Kind.BAD_REQUEST, "; ".join([*faults[:SHOWN], *rest]))
    inputs: Any = _bare(value) or value["inputs"]
    single = not isinstance(inputs, list)
    questions = tuple(Question(item["question"], item["context"]) for item in ([inputs] if single else inputs))
    parameters = {ALIASES.get(name, name): given for name, given in (value.get("parameters") or {}).items()}
    return CheckedQuestions(questions, single, Parameters(**parameters))


def keyword_fault(given: Collection[str]) -> str:
    """The error about the first unknown keyword of a call of the pipeline; empty if all are parameters."""
    unknown = next((name for name in given if name not in _DEFAULTS), None)
    return f"unknown keyword `{unknown}`: {_hint(unknown, _DEFAULTS)}" if unknown is not None else ""


def _bare(value: object) -> dict[str, Any]:
    """The question in a body without `inputs`; empty if the body has `inputs` or is not a question."""
    if not isinstance(value, dict) or "inputs" in value or not value.keys() & set(Question._fields):
        return {}
    return {name: given for name, given in value.items() if name != "parameters"}


def _body_faults(value: object) -> Iterator[str]:
    """A generator: a body can have as many faults as bytes, and only those that the caller takes are computed."""
    if bare := _bare(value):
        yield from _question_faults(bare, "")
    else:
        yield from _inputs_faults(value)
    if isinstance(value, dict) and value.get("parameters") is not None:
        yield from _parameter_faults(value["parameters"])


def _inputs_faults(value: object) -> Iterator[str]:
    known = ("inputs", "parameters")
    if isinstance(value, list):
        yield 'the body is a list: send {"inputs": […]} with the list, or each of its elements as a line of JSON lines'
        return
    yield from _object_faults(value, "the body", known)
    if not isinstance(value, dict):
        return
    inputs = value.get("inputs")
    if "inputs" not in value:
        if value.keys() <= set(known):  # an unknown key is probably a misspelt `inputs`
            yield f"`inputs` is missing: {_EXAMPLE}"
    elif not isinstance(inputs, list):
        yield from _question_faults(inputs, "inputs")
    elif not inputs:
        yield "`inputs` is an empty list: send at least one question with its context"
    else:
        for index, item in enumerate(inputs):
            yield from _question_faults(item, f"inputs[{index}]")


def _object_faults(value: object, place: str, known: Collection[str]) -> Iterator[str]:
    """Why `value` is not an object whose keys are all in `known`."""
    if isinstance(value, str) and value.lstrip(' "\\').startswith(("{", "[")):
        yield f"{place} is a string that holds JSON: send the object itself"
        return
    if not isinstance(value, dict):
        yield f"{place} is {_kind_of(value)}: it must be an object with {_listed(known)}"
        return
    for key in value:
        if key not in known:
            yield f"unknown key `{key[:_LONGEST_KEY]}` in {place}: {_hint(key, known)}"


def _hint(key: str, known: Collection[str]) -> str:
    """A suggestion for an unknown key."""
    meant = near_misses.OTHER_NAMES.get(key)
    if meant and (meant in known or "inputs" in known):
        return f"did you mean `{meant}`?"
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5) if len(key) <= _LONGEST_KEY else []
    if near:
        return f"did you mean `{near[0]}`?"
    return _EXAMPLE if "inputs" in known else f"known are {_listed(known)}"


def _question_faults(value: object, place: str) -> Iterator[str]:
    """`place`: such as `inputs[2]`; empty if the body itself is the question."""
    yield from _object_faults(value, f"`{place}`" if place else "the body", Question._fields)
    prefix = f"{place}." if place else ""
    if not isinstance(value, dict):
        return
    for name in Question._fields:
        if name not in value:
            if value.keys() <= set(Question._fields):
                yield f"`{prefix}{name}` is missing: a question needs `question` and `context`"
        elif not isinstance(value[name], str):
            yield f"`{prefix}{name}` is {_kind_of(value[name])}: it must be a string"
        elif not value[name].strip():
            yield f"`{prefix}{name}` is empty: send some text"


def _parameter_faults(value: object) -> Iterator[str]:
    yield from _object_faults(value, "`parameters`", _DEFAULTS)
    if not isinstance(value, dict):
        return
    for name, given in value.items():
        if ALIASES.get(name) in value:
            yield f"`parameters.{name}` is another name of `{ALIASES[name]}`: send one of the two"
        elif isinstance(_DEFAULTS.get(name), bool):
            if not isinstance(given, bool):
                yield f"`parameters.{name}` is {_kind_of(given)}: it must be true or false"
        elif name in _DEFAULTS:
            yield from _number_faults(name, given)


def _number_faults(name: str, value: object) -> Iterator[str]:
    least, most = BOUNDS[ALIASES.get(name, name)]
    if type(value) is not int:  # in Python bool is a subclass of int
        kind = "not a whole number" if isinstance(value, float) else _kind_of(value)
        yield f"`parameters.{name}` is {kind}: it must be a whole number"
    elif not least <= value <= most:
        yield f"`parameters.{name}` is out of range: it must be from {least} to {most}"


def _kind_of(value: object) -> str:
    """The name of a value's JSON type, for an error."""
    names = {bool: "true or false", dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")


def _listed(names: Collection[str]) -> str:
    *head, last = (f"`{name}`" for name in names)
    return f"{', '.join(head)} and {last}" if head else last
