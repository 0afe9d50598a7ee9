"""How a handler's function is called: by what its parameters are, not by how many there are.

The functions' standard arguments go first. `context` is passed to a parameter of that name, or to the one further
parameter that has no default. Any other parameter keeps its default.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

CONTEXT = "context"
ARGUMENTS = {
    "pre_model_fn": ("model_dir",),
    "model_fn": ("model_dir",),
    "model_warmup_fn": ("model_dir", "model"),
    "input_fn": ("body", "content_type"),
    "predict_fn": ("data", "model"),
    "output_fn": ("prediction", "accept"),
    "transform_fn": ("model", "body", "content_type", "accept"),
}
"""Function → its standard arguments, in their order."""

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


class CallError(Exception):
    """A function can't be called with the arguments of its name; one sentence."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What a function is called with.

    positional: how many standard arguments are passed by position. named: the standard arguments that are passed by
    name, after these. context: how the context is passed: "" not at all, "*" behind the positional ones, else the
    keyword.
    """

    positional: int
    named: tuple[str, ...] = ()
    context: str = ""

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], context: object) -> Any:
        """What the function returns; `arguments` are the standard ones, in their order."""
        first = [*arguments[: self.positional], *([context] if self.context == "*" else [])]
        keywords = dict(zip(self.named, arguments[self.positional :], strict=False))
        if self.context not in ("", "*"):
            keywords[self.context] = context
        return function(*first, **keywords)


def plan_call(name: str, function: Callable[..., Any]) -> CallPlan:
    """How to call the handler's function of that name; CallError if it can't take its standard arguments."""
    standard = ARGUMENTS[name]
    parameters = _parameters(function)
    if parameters is None:
        return CallPlan(len(standard))
    shown = f"{name}({', '.join(map(_shown, parameters))})"
    by_position = [each for each in parameters if each.kind in _POSITIONAL]
    keywords = {each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY}
    any_number = any(each.kind is Parameter.VAR_POSITIONAL for each in parameters)
    positional = len(standard) if any_number else min(len(standard), len(by_position))
    named = standard[positional:]
    taken = by_position[:positional]
    lacking = [each for each in named if each not in keywords]
    if lacking or any(each.name == CONTEXT for each in taken):
        raise CallError(
            f"{shown} can't be called: define it as {name}({', '.join(standard)}); a further parameter {CONTEXT} is "
            "optional"
        )
    others = [each for each in parameters if each not in taken and each.name not in named]
    following = by_position[positional : positional + 1]
    context, unknown = _context(others, following)
    if unknown:
        raise CallError(
            f"{shown} can't be called: nothing is passed for {_list(unknown)}; give it a default, or have model_fn "
            "return it with the model"
        )
    return CallPlan(positional, named, context)


def _context(others: Sequence[Parameter], following: Sequence[Parameter]) -> tuple[str, list[str]]:
    """How the context is passed, by the parameters that get no standard argument, and those that would get nothing.
    `following`: the one behind the positional arguments, which a decorator may take by position alone.
    """
    required = [each for each in others if each.default is Parameter.empty and each.kind not in _VARIADIC]
    named = [each for each in others if each.name == CONTEXT and each.kind not in _VARIADIC]
    chosen = (named or required)[:1]
    unknown = [each.name for each in required if each not in chosen]
    if not chosen:
        return "", unknown
    return "*" if chosen[0] in following else chosen[0].name, unknown


def _parameters(function: Callable[..., Any]) -> list[Parameter] | None:
    """The function's own parameters, or of a decorator's `(*args, **kwargs)` those of what it wraps; None for a
    function in C that does not tell.
    """
    try:
        found = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    except (TypeError, ValueError):
        found = None
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None and all(each.kind in _VARIADIC for each in found or ()):
        return _parameters(wrapped)
    return found


def _shown(parameter: Parameter) -> str:
    return f"{_VARIADIC.get(parameter.kind, '')}{parameter.name}{'' if parameter.default is Parameter.empty else '=…'}"


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
