"""Functions that are called after a module has been imported; each test uses its own Python."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run(code: str, folder: Path, *, before: str = "") -> list[str]:
    """The lines that `code` prints with `folder` on sys.path; it can register the function `show`."""
    (folder / "library").mkdir(exist_ok=True)
    (folder / "library/__init__.py").write_text("print('runs')\nNAME = 'library'\n")
    (folder / "library/inner.py").write_text("from library import NAME\n")
    (folder / "broken.py").write_text("raise ValueError('boom')\n")
    start = f"""
    import sys
    sys.path.insert(0, {str(folder)!r})
    {before}
    from berth.train.startup.after_import import register
    def show(module):
        print("imported", module.__name__)
    """
    text = textwrap.dedent(start) + textwrap.dedent(code)
    result = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout.splitlines()


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("register('library', show)", []),
        ("register('library', show); import library", ["runs", "imported library"]),
        ("register('library', show); import library, library", ["runs", "imported library"]),
        ("import library; register('library', show)", ["runs", "imported library"]),
        ("register('library', show); register('library', show); import library", ["runs", "imported library"]),
        (
            "register('library', show); register('library', lambda _: print('and')); import library",
            ["runs", "imported library", "and"],
        ),
        ("register('library.inner', show); import library.inner", ["runs", "imported library.inner"]),
        (
            "register('library', show); from importlib.util import find_spec; print(find_spec('library').name)",
            ["library"],
        ),
        ("register('library', lambda module: 1 / 0); import library; print('on')", ["runs", "on"]),
        ("register('sys', show); import sys", ["imported sys"]),
        ("register('_cffi_backend', show); import _cffi_backend", ["imported _cffi_backend"]),
        ("register('absent', show)\ntry:\n import absent\nexcept ModuleNotFoundError: print('absent')", ["absent"]),
        ("register('broken', show)\ntry:\n import broken\nexcept ValueError: print('broken')", ["broken"]),
    ],
    ids=[
        "not imported",
        "imported later",
        "imported twice",
        "already imported",
        "registered twice",
        "two functions",
        "submodule",
        "only find_spec",
        "function raises",
        "built-in module",
        "extension module",
        "missing module",
        "module raises",
    ],
)
def test_registered_function_is_called_after_import(code: str, lines: list[str], tmp_path: Path) -> None:
    assert run(code, tmp_path) == lines


def test_patched_module_looks_unpatched(tmp_path: Path) -> None:
    code = """
    register("library", show)
    import inspect, library
    from importlib import machinery, reload, resources
    assert type(library.__loader__) is machinery.SourceFileLoader
    assert sorted(vars(library.__loader__)) == ["name", "path"]
    assert library.__spec__.loader is library.__loader__
    assert inspect.getsource(library) == open(library.__file__).read()
    assert resources.files("library").joinpath("inner.py").is_file()
    reload(library)
    """
    assert run(code, tmp_path) == ["runs", "imported library", "runs", "imported library"]


def test_other_finders_are_used(tmp_path: Path) -> None:
    """Another finder may provide modules that have no file."""
    before = """
    from importlib.abc import Loader, MetaPathFinder
    from importlib.machinery import ModuleSpec
    class Own(MetaPathFinder, Loader):
        def find_spec(self, name, path, target=None):
            return ModuleSpec(name, self) if name in ("made", "made_too") else None
        def exec_module(self, module):
            print("makes", module.__name__)
    sys.meta_path.append(Own())
    """
    code = "register('made', show)\nregister('made_too', show)\nimport made, made_too"
    lines = ["makes made", "imported made", "makes made_too", "imported made_too"]
    assert run(code, tmp_path, before=textwrap.dedent(before).replace("\n", "\n    ")) == lines
