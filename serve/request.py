"""What was asked: the JSON value of a request, checked field by field, as questions and parameters.

    {"inputs": {"question": "…", "context": "…"}}                      one question → one answer
    {"inputs": [{…}, {…}], "parameters": {"top_k": 3}}                 a list → a list, in the same order

The parameters are those of transformers' former question-answering pipeline, with its defaults. Every refusal is a
ServeError (400) that names the place, such as `inputs[2].context`.
"""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import BOUNDS


class Question(NamedTuple):
    """One question over one context. Offsets of answers count Unicode code points of `context`, as Python does."""

    question: str
    context: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """How to answer. None means the default that fits the model: windows of 384 tokens that share 128, or less."""

    top_k: int = 1  # answers per question; more than 1 makes each question's answer a list
    max_answer_len: int = 15  # tokens
    max_seq_len: int | None = None  # tokens of a window: question, context and special tokens
    doc_stride: int | None = None  # tokens that neighbouring windows share
    handle_impossible_answer: bool = False  # let "no answer" (an empty string at 0 to 0) compete


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. `single`: `inputs` was one question and not a list, so the answer is no list either."""

    questions: tuple[Question, ...]
    single: bool
    parameters: Parameters


def parse(value: object) -> Request:
    """The request in a decoded JSON value; ServeError (400) with the first fault."""
    body = _object(value, "the body", ("inputs", "parameters"))
    if "inputs" not in body:
        raise _bad('`inputs` is missing: send {"inputs": {"question": "…", "context": "…"}}')
    inputs = body["inputs"]
    parameters = _parameters(body.get("parameters"))
    if not isinstance(inputs, list):
        return Request((_question(inputs, "inputs"),), single=True, parameters=parameters)
    if not inputs:
        raise _bad("`inputs` is an empty list: send at least one question with its context")
    questions = tuple(_question(item, f"inputs[{index}]") for index, item in enumerate(inputs))
    return Request(questions, single=False, parameters=parameters)


def _bad(message: str) -> ServeError:
    return ServeError(Kind.BAD_REQUEST, message)


def _kind_of(value: object) -> str:
    """The JSON name of a value's type, for a sentence."""
    names = {bool: "true or false", dict: "an object", list: "a list", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")


def _object(value: object, place: str, known: Collection[str]) -> Mapping[str, object]:
    """`value` as an object with no other key than `known`."""
    if not isinstance(value, dict):
        raise _bad(f"{place} is {_kind_of(value)}: it must be an object with {_listed(known)}")
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean `{near[0]}`?" if near else f"known are {_listed(known)}"
            raise _bad(f"unknown key `{key[:80]}` in {place}: {hint}")
    return value


def _listed(names: Collection[str]) -> str:
    *head, last = (f"`{name}`" for name in names)
    return f"{', '.join(head)} and {last}" if head else last


def _question(value: object, place: str) -> Question:
    item = _object(value, f"`{place}`", Question._fields)
    texts = []
    for name in Question._fields:
        if name not in item:
            raise _bad(f"`{place}.{name}` is missing: a question needs `question` and `context`")
        text = item[name]
        if not isinstance(text, str):
            raise _bad(f"`{place}.{name}` is {_kind_of(text)}: it must be a string")
        if not text.strip():
            raise _bad(f"`{place}.{name}` is empty: send some text")
        texts.append(text)
    return Question(*texts)


def _parameters(value: object) -> Parameters:
    if value is None:
        return Parameters()
    given = _object(value, "`parameters`", tuple(Parameters.__dataclass_fields__))
    for name, number in given.items():
        if name == "handle_impossible_answer":
            if not isinstance(number, bool):
                raise _bad(f"`parameters.{name}` is {_kind_of(number)}: it must be true or false")
            continue
        if type(number) is not int:  # bool is an int in Python, and true is no number of tokens
            kind = "no whole number" if isinstance(number, float) else _kind_of(number)
            raise _bad(f"`parameters.{name}` is {kind}: it must be a whole number")
        least, most = BOUNDS[name]
        if not least <= number <= most:
            raise _bad(f"`parameters.{name}` is out of range: it must be from {least} to {most}")
    return Parameters(**given)  # type: ignore[arg-type]
