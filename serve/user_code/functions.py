"""Imports a handler's file and calls its functions, or our defaults for those that it does not define."""

import asyncio
import importlib
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from berth.contract.nearest import close_match
from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.questions.codecs import CSV, JSON, UTF_8, split
from berth.serve.user_code.defaults import DefaultHandler
from berth.serve.user_code.find import ARGUMENTS, FUNCTIONS, UserCode

log = logging.getLogger(__name__)

CONTEXT = "context"

LAST = "*"
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class CallError(Exception):
    """A function can't be called with the standard arguments of its name; the text is one sentence."""


def context_form(name: str, function: Callable[..., Any]) -> str:
    """How the handler's function of that name takes the context: "" not at all, `LAST` after its standard
    arguments, or `CONTEXT` by that name; CallError if it can't be called.
    """
    standard = ARGUMENTS[name]
    signature = _signature(function)
    if signature is None:
        return ""
    names = list(signature.parameters)
    forms = [CONTEXT] if CONTEXT in names else ["", LAST]
    if names[len(standard) :][:1] == [CONTEXT]:  # a decorator may accept only positional arguments
        forms = [LAST, CONTEXT]
    for form in forms:
        try:
            call(signature.bind, standard, form, None)
        except TypeError:
            continue
        return form
    raise CallError(
        f"{name}{str(signature)[:200]} can't be called: define it as {name}({', '.join(standard)}); a further "
        f"parameter {CONTEXT} is optional, any other needs a default"
    )


def call(function: Callable[..., Any], arguments: Sequence[Any], form: str, context: object) -> Any:
    """Call the function. `form`: the result of `context_form`."""
    if form == LAST:
        return function(*arguments, context)
    return function(*arguments, **({CONTEXT: context} if form else {}))


def _signature(function: Callable[..., Any]) -> Signature | None:
    """The function's signature; for a decorator with `(*args, **kwargs)`, that of the function it wraps. None for a
    function in C without one.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        signature = None
    wrapped = getattr(function, "__wrapped__", None)
    parameters = signature.parameters.values() if signature else ()
    if wrapped is not None and all(parameter.kind in _VARIADIC for parameter in parameters):
        return _signature(wrapped)
    return signature


# transform_fn replaces all three.
_STEP_FUNCTIONS = ("input_fn", "predict_fn", "output_fn")
# Functions get bodies of these types as text and all others as bytes, as with SageMaker's toolkit.
_TEXT_TYPES = (JSON, CSV)


def import_handler(code: UserCode) -> ModuleType:
    """Import the handler's file; exceptions of its code pass through. It can import modules next to it, at the top of
    its source folder, and in lib/ there, where the SDK puts dependencies.
    """
    folders = dict.fromkeys(map(str, (code.file.parent, code.folder, code.folder / "lib")))
    sys.path[:0] = [folder for folder in folders if os.path.isdir(folder)]
    sys.path.append(str(Path(__file__).with_name("shims")))
    importlib.invalidate_caches()
    # The module gets the file's name, so that its classes can be pickled, unless a module such as json has that name.
    name = code.file.stem if code.file.stem not in sys.modules else f"{code.file.stem} of the model"
    spec = importlib.util.spec_from_file_location(name, code.file)
    assert spec is not None, "the file's name ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def misspelt(module: ModuleType) -> dict[str, str]:
    """The module's own functions with almost the name of a handler's, such as `predct_fn`, and the names meant."""
    # By the type alone, because an attribute of a user's object may raise anything.
    functions = {name: value for name, value in vars(module).items() if type(value) is FunctionType}
    names = [name for name, function in functions.items() if function.__module__ == module.__name__]
    # 0.9, because `predict` and `transform` are likely names of other functions.
    return {name: meant for name in names if name not in ARGUMENTS and (meant := close_match(name, ARGUMENTS, 0.9))}


class HandlerFunctions:
    """Answers with transform_fn, or with input_fn, predict_fn and output_fn.

    The result of an `async` function is awaited, in one event loop for the life of the process. The values of an async
    generator are collected first.
    """

    def __init__(self, module: ModuleType, defaults: DefaultHandler, context: object) -> None:
        """ModelFilesError with a sentence for each function that can't be called."""
        self._context = context
        self._runner = asyncio.Runner()
        own = {name: value for name in ARGUMENTS if (value := getattr(module, name, None)) is not None}
        problems = [] if own.keys() & set(FUNCTIONS) else [f"it has none of {', '.join(FUNCTIONS)}"]
        if "transform_fn" in own and (others := [name for name in _STEP_FUNCTIONS if name in own]):
            problems.append(
                f"it has transform_fn and {' and '.join(others)}: transform_fn replaces all of "
                f"{', '.join(_STEP_FUNCTIONS)}, so delete it or them"
            )
        for name, meant in misspelt(module).items():
            log.warning("%s defines %s, which is never called: did you mean %s?", module.__file__, name, meant)
        self._own = own
        self._calls: dict[str, tuple[Callable[..., Any], str]] = {}
        for name in ARGUMENTS:
            function = own.get(name) or getattr(defaults, name, None)
            try:
                if callable(function):
                    self._calls[name] = function, context_form(name, function)
                elif function is not None:
                    raise CallError(f"{name} is not a function: {type(function).__name__}")
            except CallError as error:
                problems.append(str(error))
        if problems:
            raise ModelFilesError(f"{module.__file__} can't be used: {'; '.join(problems)}")
        self._model: Any = None

    def load_model(self, model_dir: str) -> None:
        """Call model_fn; ModelFilesError if it is a generator."""
        if "pre_model_fn" in self._own:
            self._run("pre_model_fn", model_dir)
        model = self._run("model_fn", model_dir)
        if inspect.isgenerator(model):
            raise ModelFilesError("model_fn yields the model: it must return it")
        self._model = model
        if "model_warmup_fn" in self._own:
            self._run("model_warmup_fn", model_dir, model)

    def transform(self, body: bytes, content_type: str, accept: str) -> Any:
        """The result of output_fn or transform_fn. `content_type` and `accept`: header values."""
        if "transform_fn" in self._own:
            return self._run("transform_fn", self._model, _text_or_bytes(body, content_type), content_type, accept)
        own_input = "input_fn" in self._own
        data = self._run("input_fn", _text_or_bytes(body, content_type) if own_input else body, content_type)
        prediction = self._run("predict_fn", data, self._model)
        return self._run("output_fn", prediction, accept)

    def _run(self, name: str, *arguments: Any) -> Any:
        function, form = self._calls[name]
        result: Any = call(function, arguments, form, self._context)
        if inspect.isawaitable(result):
            return self._runner.run(_await(result))
        if inspect.isasyncgen(result):
            return (value for value in self._runner.run(_collect(result)))
        return result


def _text_or_bytes(body: bytes, content_type: str) -> str | bytes:
    """The body as text without a byte order mark if it is JSON or CSV in UTF-8, else the unchanged bytes."""
    media_type, parameters = split(content_type)
    if media_type not in _TEXT_TYPES or parameters.get("charset", "utf-8").lower() not in UTF_8:
        return body
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body


async def _await(result: Awaitable[Any]) -> Any:
    return await result


async def _collect(values: AsyncIterable[Any]) -> list[Any]:
    return [value async for value in values]
