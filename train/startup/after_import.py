"""Calls a function after a module has been imported: `register("torch", function)`. `wrap` patches a library.

The start-up hooks (berth.train.startup.start_hook) patch libraries with it, without importing them: that takes seconds,
and the program may never use them. This module is loaded in every Python of the training image, so it imports only
modules that are already loaded.
"""

import sys

TYPE_CHECKING = False  # typing's own would cost each Python of the image 4 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Function = Callable[[ModuleType], object] | str

_waiting: "dict[str, list[Function]]" = {}


def register(name: str, function: "Function") -> None:
    """Call `function` with the module `name`: at once if it is already imported, else after each of its imports.

    Registering a function again has no effect before the import (a virtual environment's start-up files run twice).
    Exceptions of `function` are ignored: they must not reach the importing program. A function given as "module:name"
    is imported when it is called.
    """
    module = sys.modules.get(name)
    if module is not None:
        _call(function, module)
        return
    waiting = _waiting.setdefault(name, [])
    if function not in waiting:
        waiting.append(function)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def wrap(owner: "Any", name: str) -> "Callable[[Any], Any]":
    """A decorator: replaces the function `owner.name` by one that gets the original before its arguments."""
    from functools import wraps

    original = getattr(owner, name)

    def decorate(function: "Callable[..., Any]") -> "Callable[..., Any]":
        @wraps(original)
        def replacement(*args: "Any", **kwargs: "Any") -> "Any":
            return function(original, *args, **kwargs)

        setattr(owner, name, replacement)
        return function

    return decorate


def _call(function: "Function", module: "ModuleType") -> None:
    try:
        if isinstance(function, str):
            from importlib import import_module

            ours, _, name = function.partition(":")
            getattr(import_module(ours), name)(module)
        else:
            function(module)
    except Exception:
        return


class _Finder:
    """First on sys.meta_path: finds a registered module with the other finders, and patches its loader."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                _call_after(spec)
                return spec
        return None


def _call_after(spec: "ModuleSpec") -> None:
    """Patch the loader of `spec` so that it calls the registered functions after it has run the module.

    The loader must remain the same object, because others use its class and methods (inspect, importlib.resources). The
    patch is removed before the module runs. Loaders of built-in modules are classes and can't be patched: skip them.
    """
    loader = spec.loader
    own = getattr(loader, "__dict__", {"exec_module": None})
    if loader is None or "exec_module" in own:
        return
    run = loader.exec_module

    def exec_module(module: "ModuleType") -> None:
        own.pop("exec_module", None)
        run(module)
        for function in _waiting.get(module.__name__, ()):
            _call(function, module)

    loader.exec_module = exec_module  # type: ignore[method-assign]
