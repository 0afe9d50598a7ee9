"""Calls a function once a module has been imported, whoever imports it and whenever: `register("torch", function)`.

For the image's start-up file (berth.train.startup.start_hook): what a library is to be told, or asked at the end,
without importing it, which takes seconds, in a Python that may never use it. It is loaded in every Python of the
training image, and so imports nothing that is not loaded there already.
"""

import sys

TYPE_CHECKING = False  # typing's own would cost each Python of the image 4 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Function = Callable[[ModuleType], object] | str

_waiting: "dict[str, list[Function]]" = {}


def register(name: str, function: "Function") -> None:
    """Have `function` called with the module `name`: at once if it has been imported, else whenever its import is done,
    and once however often it is registered, because a virtual environment's start-up files are run twice. An error in
    `function` is ignored: it must not reach the importing program. A function given as "module:name" is imported when
    it is called.
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
    """First on sys.meta_path: has the others find a module that is waited for, and its loader call when it has run."""

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
    """Have the loader of `spec` call what waits for its module.

    The loader stays the object that it is, for others look at its class and use its methods (inspect,
    importlib.resources), and is as it was when the module runs. One that can't be told is left alone: Python's own for
    built-in modules, which are classes.
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
