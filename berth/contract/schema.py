"""The hyperparameters of an image's run_qa as JSON, for machines without transformers.

`python -P -m berth.train.run_qa.schema` prints the schema in a training image. Options read from it parse and reject
values as in the image, so mistakes are reported before a container starts.
"""

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, make_dataclass
from enum import Enum
from functools import reduce
from operator import or_
from typing import Any, Literal, Union, get_args, get_origin

from berth.contract.hyperparameters import Option

VERSION = 1
_PLAIN: dict[str, Any] = {"bool": bool, "int": int, "float": float, "str": str, "object": dict, "false": Literal[False]}
_NAMES = {kind: name for name, kind in _PLAIN.items()}


class SchemaError(ValueError):
    """The text is not a schema that this version of berth reads; another version may have written it."""


def write_schema(options: Mapping[str, Option]) -> str:
    """The options as one line of JSON."""
    rows = [
        {
            "name": option.name,
            "kinds": _kinds(option.type),
            "choices": list(option.choices),
            "default": option.default,
            "meaning": option.meaning,
        }
        for option in options.values()
    ]
    return json.dumps({"version": VERSION, "options": rows})


def read_schema(text: str) -> dict[str, Option]:
    """The options that `write_schema` wrote, in their order. Raises SchemaError."""
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise SchemaError(f"the schema has version {content['version']!r}, not {VERSION}")
        return {
            row["name"]: Option(
                row["name"],
                _union(row["kinds"]),
                tuple(row["choices"]),
                # Images of earlier builds have neither.
                row.get("default", ""),
                row.get("meaning", ""),
            )
            for row in content["options"]
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"this is not a schema ({type(error).__name__}: {error})") from error


def _kinds(declared: Any) -> list[Any]:
    """A declared type as JSON: the members of its union, in order."""
    if get_origin(declared) in (Union, types.UnionType):
        return [kind for member in get_args(declared) for kind in _kinds(member)]
    if declared is type(None):
        return []
    if declared in _NAMES:
        return [_NAMES[declared]]
    if declared is list or get_origin(declared) is list:
        return [{"list": [kind for item in get_args(declared) or (str,) for kind in _kinds(item)]}]
    if get_origin(declared) is dict:
        return ["object"]
    if isinstance(declared, type) and issubclass(declared, Enum):
        return [{"enum": declared.__name__, "members": {member.name: str(member.value) for member in declared}}]
    if is_dataclass(declared) and isinstance(declared, type):
        return [{"class": declared.__name__, "fields": [spec.name for spec in fields(declared) if spec.init]}]
    raise TypeError(f"no kind for the type {declared!r}")


def _union(kinds: list[Any]) -> Any:
    return reduce(or_, [_type(kind) for kind in kinds])


def _type(kind: Any) -> Any:
    if isinstance(kind, str):
        return _PLAIN[kind]
    if "list" in kind:
        return list[_union(kind["list"])]  # type: ignore[misc]
    if "enum" in kind:
        return Enum(kind["enum"], kind["members"])
    # Only the image knows the rules for the values. An unknown field raises the same error here.
    return make_dataclass(kind["class"], [(name, Any, None) for name in kind["fields"]])
