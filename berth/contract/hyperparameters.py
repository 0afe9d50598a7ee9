"""Parses the strings of `hyperparameters.json` into typed values.

SageMaker delivers every hyperparameter as text, and clients encode it differently: a plain estimator sends `str(value)`
(`'True'`, `'bert'`), framework estimators and SDK v3 send JSON (`'true'`, `'"bert"'`), and some notebooks encode once
more. The text alone is ambiguous (`123` may be a number or a model's name), so it is parsed by the option's declared
type. `parse` checks every name and value and reports all errors at once.

Standard library only: the `train` entry reads its own settings with it, and must not wait seconds for torch's import.
"""

import ast
import dataclasses
import json
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from berth.contract.errors import JobError
from berth.contract.nearest import close_match, nearest

TRUE_WORDS = frozenset({"true", "1", "yes", "on", "y", "t"})
FALSE_WORDS = frozenset({"false", "0", "no", "off", "n", "f"})
NONE_WORDS = frozenset({"None", "null", ""})
# Hyperparameter → values that transformers 5 no longer accepts → their replacements.
DEPRECATED_VALUES = {"optim": {"adamw_hf": "adamw_torch"}}
QUOTE_LAYERS = 3  # the most seen: json.dumps twice in a notebook and once in a framework estimator

PLATFORM_PREFIXES = ("sagemaker_", "_tuning_")
PLATFORM_NAMES = frozenset({"default_user_module_name"})
# The launcher reads these before any rank starts; run_qa only has to accept the names.
LAUNCHER_NAMES = frozenset({"processes_per_host"})

UNSET: Any = object()  # returned by `decode` for None, null and empty text: the option keeps its default


class HyperparameterError(JobError):
    """One sentence with every invalid hyperparameter and what to do."""


@dataclass(frozen=True, slots=True)
class Option:
    """A known hyperparameter: its name, declared type and allowed values (`choices`; empty: any).

    For listings: `default` as text, empty for None, and `meaning`, a sentence or empty.
    """

    name: str
    type: Any
    choices: tuple[str, ...] = ()
    default: str = ""
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class DeprecatedName:
    """How a deprecated hyperparameter is handled.

    new: its current name, if it was only renamed. Otherwise its value is parsed as `type`, and `apply(value)` returns
    the replacements as typed values and the end of a log line. `apply` raises ValueError, with the end of a sentence,
    if the old setting can't be honoured. If a current option has the same name, the option is used unless `always`.
    blank: a value of the new hyperparameter that means the same as leaving it out.
    """

    type: Any = str
    apply: Callable[[Any], tuple[dict[str, Any], str]] | None = None
    new: str = ""
    always: bool = False
    blank: Any = None

    def counts(self, name: str, options: Mapping[str, Option]) -> bool:
        """Whether the name is handled as deprecated, given the options of the installed transformers."""
        return (not self.new or self.new in options) and (self.always or name not in options)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Typed values (never None), and lines for the log.

    problems: invalid name → what is wrong with it, a part of a sentence (see `refusal`).
    """

    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def options_of(*classes: type) -> dict[str, Option]:
    """The options that dataclasses declare, in order: one per field of `__init__`."""
    options: dict[str, Option] = {}
    for cls in classes:
        hints = get_type_hints(cls)
        for spec in dataclasses.fields(cls):
            if spec.init:
                default = spec.default if spec.default_factory is dataclasses.MISSING else spec.default_factory()
                options[spec.name] = Option(
                    spec.name,
                    hints[spec.name],
                    tuple(spec.metadata.get("choices") or ()),
                    "" if default is dataclasses.MISSING else default_text(default),
                    " ".join(str(spec.metadata.get("help") or "").split()).replace("%%", "%"),  # argparse's escape
                )
    return options


def default_text(value: Any) -> str:
    """A default as a user would write it; empty for None."""
    value = value.value if isinstance(value, Enum) else value
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def is_platform(name: str) -> bool:
    """Whether SageMaker or its SDK added this key; programs do not get it."""
    return name.startswith(PLATFORM_PREFIXES) or name in PLATFORM_NAMES


def as_text(raw: Any) -> str:
    """The text of a raw value. SageMaker sends only text; a hand-written file may hold other JSON types."""
    if isinstance(raw, str):
        return raw
    return "null" if raw is None else json.dumps(raw)


def unquote(text: str) -> str:
    """Remove the JSON string quotes that clients put around a text, up to three layers."""
    for _ in range(QUOTE_LAYERS):
        stripped = text.strip()
        if not (len(stripped) > 1 and stripped[0] == stripped[-1] == '"'):
            break
        try:
            text = json.loads(stripped)
        except ValueError:
            break
    return text


def decode(raw: Any, declared: Any, choices: tuple[str, ...] = ()) -> Any:
    """Parse one raw value as the declared type (a class, an Enum, Literal, list[...], dict[...] or a union of them).

    Returns UNSET for None, null and empty text. Raises ValueError with the end of a sentence: `'x' is not a number`.
    """
    text = unquote(as_text(raw))
    if text.strip() in NONE_WORDS:
        return UNSET
    members = [member for member in _members(declared) if member is not type(None)]
    value = _decode_member(text, members)
    if choices and value not in choices:
        raise ValueError(_none_of(str(value), choices))
    return value


def parse(
    raw: Mapping[str, Any],
    options: Mapping[str, Option],
    deprecated: Mapping[str, DeprecatedName] | None = None,
) -> Parsed:
    """Like `read`, but raises HyperparameterError with all problems if there are any."""
    parsed = read(raw, options, deprecated or {})
    if parsed.problems:
        raise refusal(parsed.problems.values())
    return parsed


def read(raw: Mapping[str, Any], options: Mapping[str, Option], deprecated: Mapping[str, DeprecatedName]) -> Parsed:
    """Parse every hyperparameter of `raw`. A current name wins over its deprecated ones, and the first of these."""
    parsed = Parsed({})

    def deprecated_name(given: str) -> DeprecatedName | None:
        old = deprecated.get(given.replace("-", "_"))
        return old if old and old.counts(given.replace("-", "_"), options) else None

    # Deprecated names come last, because current names win.
    for given, value in sorted(raw.items(), key=lambda item: deprecated_name(item[0]) is not None):
        name = given.replace("-", "_")
        try:
            if is_platform(name) or name in LAUNCHER_NAMES:
                continue
            if (old := deprecated_name(name)) is not None:
                _replace(name, value, old, options, parsed)
            elif name in options:
                new = DEPRECATED_VALUES.get(name, {}).get(unquote(as_text(value)).strip())
                typed = decode(new or value, options[name].type, options[name].choices)
                if typed is not UNSET:
                    parsed.values[name] = typed
                if new:
                    parsed.notes.append(f"{name}: taken as {new}")
            else:
                raise ValueError(_unknown(name, [*options, *deprecated, *LAUNCHER_NAMES]))
        except ValueError as reason:
            parsed.problems[given] = f"{given} {reason}"
    return parsed


def _unknown(name: str, known: Collection[str]) -> str:
    meant = nearest(name, known)
    return "is not known" + (f" (did you mean {meant}?)" if meant else "")


def refusal(problems: Collection[str]) -> HyperparameterError:
    """The error with all problems, each a part of a sentence: `seed 'x' is not a whole number`."""
    parts = "; ".join(problems)
    if len(problems) == 1:
        return HyperparameterError(f"One hyperparameter can't be used: {parts}; fix it and start the job again.")
    return HyperparameterError(
        f"{len(problems)} hyperparameters can't be used: {parts}; fix them and start the job again."
    )


def _replace(name: str, raw: Any, old: DeprecatedName, options: Mapping[str, Option], parsed: Parsed) -> None:
    """Add the replacement of a deprecated hyperparameter to `parsed`, unless it is set already, and a log line."""
    target = options[old.new] if old.new else Option(name, old.type)
    value = decode(raw, target.type, target.choices)
    if value is UNSET:
        return
    new, note = old.apply(value) if old.apply else ({old.new: value}, f"taken as {old.new}")
    for key, content in new.items():
        current = parsed.values.get(key, old.blank)
        if isinstance(current, dict) and isinstance(content, dict) and not current.keys() & content.keys():
            parsed.values[key] = current | content
        elif current == old.blank:
            parsed.values[key] = content
        else:
            note = f"ignored, {key} is given"
    parsed.notes.append(f"{name}: {note}")


def _members(declared: Any) -> list[Any]:
    if get_origin(declared) in (Union, types.UnionType):
        return [inner for member in get_args(declared) for inner in _members(member)]
    return [declared]


def _decode_member(text: str, members: list[Any]) -> Any:
    """Parse a text as the first member of the union that fits: structures first, plain text last."""
    word = text.strip()
    objects = [member for member in members if _is_object(member)]
    if objects and word.startswith("{"):
        return _object(word, objects[0])
    lists = [member for member in members if member is list or get_origin(member) is list]
    if lists and (word.startswith("[") or str not in members):
        return _list(word, lists[0])
    for member in members:
        if isinstance(member, type) and issubclass(member, Enum):
            return _enum(word, member)
    if bool in members or Literal[False] in members:
        value = _bool(word)
        if value is not None and (bool in members or value is False):
            return value
        if str not in members:
            raise ValueError(f"{text!r} is not a yes or no: give true or false")
    if int in members:
        return _int(word)
    if float in members:
        return _float(word)
    if str in members:
        return text
    raise ValueError(f'{text!r} is not a JSON object: give one like {{"name": 1}}')


def _bool(word: str) -> bool | None:
    lowered = word.lower()
    return True if lowered in TRUE_WORDS else False if lowered in FALSE_WORDS else None


def _int(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        pass
    number = _number(word)
    if not number.is_integer():
        raise ValueError(f"{word!r} is not a whole number")
    return int(number)


def _number(word: str) -> float:
    """A text as a number; NaN if it is not one."""
    try:
        return float(word)
    except ValueError:
        return math.nan


def _float(word: str) -> float:
    number = _number(word)
    if math.isnan(number):
        raise ValueError(f"{word!r} is not a number")
    if math.isinf(number):
        raise ValueError(f"{word!r} is not finite: give a number")
    return number


def _enum(word: str, declared: type[Enum]) -> str:
    """The value of an Enum member, written plainly (`epoch`) or as Python prints it (`IntervalStrategy.EPOCH`)."""
    name = word.rpartition(".")[2] if word.startswith(f"{declared.__name__}.") else word
    for member in declared:
        if name.lower() in (str(member.value).lower(), member.name.lower()):
            return str(member.value)
    raise ValueError(_none_of(word, [str(member.value) for member in declared]))


def _none_of(word: str, choices: Iterable[str]) -> str:
    choices = list(choices)
    near = close_match(word, choices, 0.5)
    hint = f" (did you mean {near}?)" if near else ""
    return f"{word!r} is not one of {', '.join(choices)}{hint}"


def _literal(word: str) -> Any:
    """A structure written as JSON or, by a plain estimator, as a Python literal; None for other texts."""
    try:
        return json.loads(word)
    except ValueError:
        pass
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _is_object(member: Any) -> bool:
    return member is dict or get_origin(member) is dict or dataclasses.is_dataclass(member)


def _object(word: str, declared: Any) -> Any:
    value = _literal(word)
    if not isinstance(value, dict):
        raise ValueError(f'{word!r} is not a JSON object: give one like {{"name": 1}}')
    if not dataclasses.is_dataclass(declared):
        return value
    try:
        return declared(**value)  # type: ignore[operator]
    except (TypeError, ValueError) as reason:
        raise ValueError(f"{word!r} does not fit: {reason}") from reason


def _list(word: str, declared: Any) -> list[Any]:
    value = _literal(word) if word.startswith("[") else [part for part in word.replace(",", " ").split() if part]
    if not isinstance(value, list):
        raise ValueError(f'{word!r} is not a JSON list: give one like ["a", "b"]')
    (item,) = get_args(declared) or (str,)
    return [typed for part in value if (typed := decode(part, item)) is not UNSET]
