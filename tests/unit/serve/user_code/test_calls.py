"""The arguments of a handler's functions, by the names and kinds of their parameters."""

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest

from berth.serve.user_code.functions import CallError, call, context_form, misspelt

CONTEXT = object()


def passed(name: str, function: Callable[..., Any], *arguments: str) -> Any:
    return call(function, arguments, context_form(name, function), CONTEXT)


class Predictor:
    def __call__(self, data: str, model: str, context: object) -> tuple[Any, ...]:
        return data, model, context

    def method(self, data: str, model: str) -> tuple[Any, ...]:
        return data, model

    @staticmethod
    def static(data: str, model: str, top: int = 3) -> tuple[Any, ...]:
        return data, model, top


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def positional_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


def without_the_context(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(data: str, model: str) -> Any:
        return function(data, model, None)

    return wrapper


def with_context(data: str, model: str, context: object) -> tuple[Any, ...]:
    return data, model, context


def with_top(data: str, model: str, *, top: int) -> tuple[Any, ...]:
    return data, model, top


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda data, model: (data, model), ("d", "m")),
        (lambda data, model, context: (data, model, context), ("d", "m", CONTEXT)),
        (lambda data, model, ctx: (data, model, ctx), ("d", "m", CONTEXT)),
        (lambda data, model, context=None: (data, model, context), ("d", "m", CONTEXT)),
        (lambda data, model, top=3: (data, model, top), ("d", "m", 3)),
        (lambda data, model, top=3, context=None: (data, model, top, context), ("d", "m", 3, CONTEXT)),
        (lambda data, model, top=3, *, context: (data, model, top, context), ("d", "m", 3, CONTEXT)),
        (lambda data, model, context, /: (data, model, context), ("d", "m", CONTEXT)),
        (lambda data, model, **more: (data, model, more), ("d", "m", {})),
        (lambda data, model, *more: (data, model, more), ("d", "m", ())),
        (lambda *every, **more: (every, more), (("d", "m"), {})),
        (lambda x, y: (x, y), ("d", "m")),
        (Predictor(), ("d", "m", CONTEXT)),
        (Predictor().method, ("d", "m")),
        (Predictor.static, ("d", "m", 3)),
        (timed(with_context), ("d", "m", CONTEXT)),
        (positional_alone(with_context), ("d", "m", CONTEXT)),
        (without_the_context(with_context), ("d", "m", None)),
        (functools.partial(with_top, top=7), ("d", "m", 7)),
        (functools.lru_cache(with_context), ("d", "m", CONTEXT)),
    ],
)
def test_arguments_of_predict_fn_by_its_signature(function: Callable[..., Any], expected: Any) -> None:
    assert passed("predict_fn", function, "d", "m") == expected


def test_arguments_of_other_functions() -> None:
    assert passed("model_fn", lambda model_dir, **more: (model_dir, more), "/m") == ("/m", {})
    assert passed("model_fn", lambda model_dir, context: (model_dir, context), "/m") == ("/m", CONTEXT)
    assert passed("model_fn", str, "/m") == "/m"  # a class
    assert passed("model_fn", len, "/m") == 2  # in C
    four = passed("transform_fn", lambda model, data, content_type, accept=None: (model, accept), "m", "b", "t", "a")
    assert four == ("m", "a")


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("model_fn", lambda: None, "model_fn() can't be called: define it as model_fn(model_dir)"),
        ("predict_fn", lambda data: None, "predict_fn(data) can't be called: define it as predict_fn(data, model)"),
        ("input_fn", lambda body, context: None, "input_fn(body, context) can't be called"),
        ("predict_fn", lambda data, model, a, b, c=1: None, "predict_fn(data, model, a, b, c=1) can't be called"),
        ("predict_fn", lambda data, model, context, top: None, "any other needs a default"),
        ("predict_fn", lambda data, *, net: None, "predict_fn(data, *, net) can't be called"),
    ],
)
def test_signature_without_the_standard_arguments_is_refused(
    name: str, function: Callable[..., Any], words: str
) -> None:
    with pytest.raises(CallError) as caught:
        context_form(name, function)
    assert words in str(caught.value)


class Raising:
    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


def test_misspelt_functions_are_those_with_almost_the_right_name() -> None:
    module = types.ModuleType("inference")
    names = ("predict_fn", "predct_fn", "ouput_fn", "input_fun", "predict", "transform", "load_model", "model_fn")
    exec("\n".join(f"def {name}(): ..." for name in names), vars(module))
    module.transform_fm = timed  # type: ignore[attr-defined]  # of another module
    module.model_fm = Raising()  # type: ignore[attr-defined]
    assert misspelt(module) == {"predct_fn": "predict_fn", "ouput_fn": "output_fn", "input_fun": "input_fn"}
