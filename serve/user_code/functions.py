"""The functions of a handler's file, ours in place of those that it lacks, and the model between them."""

import asyncio
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import AsyncIterable, Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.codecs import CSV, JSON
from berth.serve.media_types import split
from berth.serve.user_code.calls import ARGUMENTS, CallError, CallPlan, plan_call
from berth.serve.user_code.find import FUNCTIONS, UserCode

_THREE = ("input_fn", "predict_fn", "output_fn")
# As SageMaker's toolkit does: functions get text of these types, and bytes of all others.
_TEXT_TYPES, _UTF_8 = (JSON, CSV), ("utf-8", "utf8", "us-ascii", "ascii")


class Defaults(Protocol):
    """Stands in for the functions that a file lacks."""

    def model_fn(self, model_dir: str) -> Any: ...
    def input_fn(self, body: bytes, content_type: str) -> Any: ...
    def predict_fn(self, data: Any, model: Any) -> Any: ...
    def output_fn(self, prediction: Any, accept: str) -> Any: ...


def import_handler(code: UserCode) -> ModuleType:
    """The module of the handler's file; whatever its code raises is raised. Modules are found next to the file, at the
    top of its source folder, and in lib/ there, where the SDK puts dependencies.
    """
    folders = dict.fromkeys(map(str, (code.file.parent, code.folder, code.folder / "lib")))
    sys.path[:0] = [folder for folder in folders if os.path.isdir(folder)]
    sys.path.append(str(Path(__file__).with_name("shims")))
    importlib.invalidate_caches()
    # A handler may be called json.py; with its own name, classes of it can be pickled.
    name = code.file.stem if code.file.stem not in sys.modules else f"{code.file.stem} of the model"
    spec = importlib.util.spec_from_file_location(name, code.file)
    assert spec is not None, "the file's name ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class HandlerFunctions:
    """What answers requests: transform_fn, or the other three one after the other.

    What an `async` function returns is awaited, in one event loop for the life of the process; what it yields is a
    generator of the values.
    """

    def __init__(self, module: ModuleType, defaults: Defaults, context: object) -> None:
        """ModelFilesError with a sentence for functions that can't be called."""
        self._context = context
        self._runner = asyncio.Runner()
        own = {name: found for name in ARGUMENTS if (found := getattr(module, name, None)) is not None}
        problems = [] if own.keys() & set(FUNCTIONS) else [f"it has none of {', '.join(FUNCTIONS)}"]
        if "transform_fn" in own and (others := [name for name in _THREE if name in own]):
            problems.append(
                f"it has transform_fn and {' and '.join(others)}: transform_fn replaces all of {', '.join(_THREE)}, so "
                "delete it or them"
            )
        self._own = own
        self._calls: dict[str, tuple[Callable[..., Any], CallPlan]] = {}
        for name in ARGUMENTS:
            function = own.get(name) or getattr(defaults, name, None)
            try:
                if callable(function):
                    self._calls[name] = function, plan_call(name, function)
                elif function is not None:
                    raise CallError(f"{name} is not a function: {type(function).__name__}")
            except CallError as error:
                problems.append(str(error))
        if problems:
            raise ModelFilesError(f"{module.__file__} can't be used: {'; '.join(problems)}")
        self._model: Any = None

    def load_model(self, model_dir: str) -> None:
        """Call model_fn; ModelFilesError if it gives no model."""
        if "pre_model_fn" in self._own:
            self._run("pre_model_fn", model_dir)
        model = self._run("model_fn", model_dir)
        if inspect.isgenerator(model):
            raise ModelFilesError("model_fn yields the model: it must return it")
        self._model = model
        if "model_warmup_fn" in self._own:
            self._run("model_warmup_fn", model_dir, model)

    def transform(self, body: bytes, content_type: str, accept: str) -> Any:
        """What output_fn or transform_fn returns. `content_type` and `accept`: as headers write them."""
        if "transform_fn" in self._own:
            return self._run("transform_fn", self._model, _text_or_bytes(body, content_type), content_type, accept)
        own_input = "input_fn" in self._own
        data = self._run("input_fn", _text_or_bytes(body, content_type) if own_input else body, content_type)
        prediction = self._run("predict_fn", data, self._model)
        return self._run("output_fn", prediction, accept)

    def _run(self, name: str, *arguments: Any) -> Any:
        function, plan = self._calls[name]
        found: Any = plan.call(function, arguments, self._context)
        if inspect.isawaitable(found):
            return self._runner.run(_await(found))
        if inspect.isasyncgen(found):
            return (each for each in self._runner.run(_collect(found)))
        return found


def _text_or_bytes(body: bytes, content_type: str) -> str | bytes:
    """Text without a byte order mark where the type is one of text and it is UTF-8, else the bytes as they came."""
    media_type, parameters = split(content_type)
    if media_type not in _TEXT_TYPES or parameters.get("charset", "utf-8").lower() not in _UTF_8:
        return body
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body


async def _await(found: Awaitable[Any]) -> Any:
    return await found


async def _collect(found: AsyncIterable[Any]) -> list[Any]:
    return [each async for each in found]
