"""The hyperparameters of an image's run_qa, for `build.py hyperparameters`."""

import types
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Union, get_args, get_origin

from berth.common.errors import UserError
from berth.contract.deprecated import DEPRECATED_NAMES
from berth.contract.hyperparameters import LAUNCHER_NAMES, Option
from berth.contract.nearest import SHORT_FORMS, nearest

_TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text"}


_PROCESSES = Option("processes_per_host", int, meaning="Ranks on each host; default: one for each GPU, or 1.")


def with_launcher_options(options: Mapping[str, Option]) -> list[Option]:
    """All hyperparameters of run_qa and of the launcher, sorted by name."""
    return sorted([*options.values(), _PROCESSES], key=lambda each: each.name)


def find(name: str, options: Mapping[str, Option]) -> Option:
    """The hyperparameter with this name, which may be deprecated; UserError, with the nearest name, if unknown."""
    normal_name = name.replace("-", "_")
    known = {each.name: each for each in with_launcher_options(options)}
    deprecated = DEPRECATED_NAMES.get(normal_name)
    if deprecated is not None and deprecated.counts(normal_name, options):
        if deprecated.new:
            new = known[deprecated.new]
            return replace(new, meaning=f"{new.meaning} {normal_name} is its deprecated name.")
        meaning = "A deprecated name: the job's log says how it is applied, or why it is ignored."
        return Option(normal_name, deprecated.type, meaning=meaning)
    if normal_name in known:
        return known[normal_name]
    meant = nearest(normal_name, [*known, *DEPRECATED_NAMES])
    hint = f": did you mean {meant}?" if meant else "."
    raise UserError(f"run_qa takes no hyperparameter {name}{hint} `python build.py hyperparameters` lists all.")


def common_names() -> frozenset[str]:
    """Names of hyperparameters that are known without an image."""
    return frozenset(SHORT_FORMS).union(DEPRECATED_NAMES, *SHORT_FORMS.values())


def type_text(option: Option) -> str:
    """A hyperparameter's valid values, in words."""
    if option.choices:
        return f"one of {', '.join(option.choices)}"
    words = list(dict.fromkeys(_words(option.type)))
    if any(word.startswith("one of ") for word in words):
        words.remove("text")  # transformers accepts the same choices as plain strings
    return " or ".join(words)


def _words(declared: Any) -> list[str]:
    if get_origin(declared) in (Union, types.UnionType):
        return [word for member in get_args(declared) if member is not type(None) for word in _words(member)]
    if isinstance(declared, type) and issubclass(declared, Enum):
        return [f"one of {', '.join(str(member.value) for member in declared)}"]
    if get_origin(declared) is list or declared is list:
        return ["list"]
    return [_TYPES.get(declared, "JSON object")]


assert {_PROCESSES.name} == LAUNCHER_NAMES
