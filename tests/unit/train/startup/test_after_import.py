"""Functions that are called once a module has been imported: in Pythons of their own, which import for real."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run(code: str, folder: Path, *, before: str = "") -> list[str]:
    """The lines that `code` prints where `folder` is on sys.path; `told` notes each module that is handed over."""
    (folder / "library").mkdir(exist_ok=True)
    (folder / "library/__init__.py").write_text("print('runs')\nNAME = 'library'\n")
    (folder / "library/inner.py").write_text("from library import NAME\n")
    (folder / "broken.py").write_text("raise ValueError('boom')\n")
    start = f"""
    import sys
    sys.path.insert(0, {str(folder)!r})
    {before}
    from berth.train.startup.after_import import register
    def told(module):
        print("told of", module.__name__)
    """
    text = textwrap.dedent(start) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("register('library', told)", []),
        ("register('library', told); import library", ["runs", "told of library"]),
        ("register('library', told); import library, library", ["runs", "told of library"]),
        ("import library; register('library', told)", ["runs", "told of library"]),
        ("register('library', told); register('library', told); import library", ["runs", "told of library"]),
        (
            "register('library', told); register('library', lambda _: print('and')); import library",
            ["runs", "told of library", "and"],
        ),
        ("register('library.inner', told); import library.inner", ["runs", "told of library.inner"]),
        (
            "register('library', told); from importlib.util import find_spec; print(find_spec('library').name)",
            ["library"],
        ),
        ("register('library', lambda module: 1 / 0); import library; print('on')", ["runs", "on"]),
        ("register('sys', told); import sys", ["told of sys"]),
        ("register('_cffi_backend', told); import _cffi_backend", ["told of _cffi_backend"]),
        ("register('absent', told)\ntry:\n import absent\nexcept ModuleNotFoundError: print('absent')", ["absent"]),
        ("register('broken', told)\ntry:\n import broken\nexcept ValueError: print('broken')", ["broken"]),
    ],
    ids=[
        "never imported",
        "later",
        "once",
        "already imported",
        "registered twice",
        "two functions",
        "in a package",
        "looked for and not imported",
        "a fault of the function",
        "built in",
        "an extension",
        "no such module",
        "a module that fails",
    ],
)
def test_registered_function_is_called_after_import(code: str, lines: list[str], tmp_path: Path) -> None:
    assert run(code, tmp_path) == lines


def test_patched_module_looks_unpatched(tmp_path: Path) -> None:
    code = """
    register("library", told)
    import inspect, library
    from importlib import machinery, reload, resources
    assert type(library.__loader__) is machinery.SourceFileLoader
    assert sorted(vars(library.__loader__)) == ["name", "path"]
    assert library.__spec__.loader is library.__loader__
    assert inspect.getsource(library) == open(library.__file__).read()
    assert resources.files("library").joinpath("inner.py").is_file()
    reload(library)
    """
    assert run(code, tmp_path) == ["runs", "told of library", "runs", "told of library"]


def test_other_finders_are_used(tmp_path: Path) -> None:
    """A library may bring modules that no file has, and a lazy importer puts its own finder first."""
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
    code = "register('made', told)\nregister('made_too', told)\nimport made, made_too"
    lines = ["makes made", "told of made", "makes made_too", "told of made_too"]
    assert run(code, tmp_path, before=textwrap.dedent(before).replace("\n", "\n    ")) == lines
