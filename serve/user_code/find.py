"""Finds the file of the user's handler. Files are parsed, never imported.

A model.tar.gz contains it as code/inference.py; the SDK names its folder and file in variables. If an estimator is
deployed, that file is its training program, and importing it would start training. So a file is a handler only if it
defines one of the handler's functions.
"""

import ast
import difflib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.contract.model_files import model_homes
from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.configuration.variables import MULTI_VARIABLE, PROGRAM_VARIABLE, SUBMIT_VARIABLE

DEFAULT_PROGRAM = "inference.py"
REQUIREMENTS = "requirements.txt"
S3 = "s3://"
FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn")
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


@dataclass(frozen=True, slots=True)
class UserCode:
    """A handler: its file, and the functions that it defines (all of them if only running it would show which).

    source: the source folder, if the file is in a subfolder of it (SAGEMAKER_PROGRAM `src/inference.py`).
    """

    file: Path
    functions: frozenset[str]
    source: Path | None = None

    @property
    def folder(self) -> Path:
        """The source folder: the model's code/, or the one that the SDK names."""
        return self.source or self.file.parent

    def model_dir(self, folder: Path) -> Path:
        """The argument of model_fn: `folder`, or the folder in it that contains the model and this code/, if the
        archive was packed with one.
        """
        return next((home for home in model_homes(folder) if self.file.is_relative_to(home / "code")), folder)

    @property
    def requirements(self) -> Path | None:
        """The requirements.txt in the source folder, else the one next to the file. Empty ones are ignored."""
        paths = (folder / REQUIREMENTS for folder in (self.folder, self.file.parent))
        return next((path for path in paths if path.is_file() and path.read_text("utf-8", "replace").strip()), None)


@dataclass(frozen=True, slots=True)
class NoHandler:
    """The image answers itself. `reason`, for the log: which file is not run, and why; else empty."""

    reason: str = ""


def find_code(model_dir: Path, environ: Mapping[str, str]) -> UserCode | NoHandler:
    """The handler, if there is one; ModelFilesError if SAGEMAKER_PROGRAM names a missing file, or the file is not valid
    Python.

    Code at an s3:// address was fetched before (berth.serve.user_code.environment). On a multi-model endpoint all
    models share the variables, and some may have no code.
    """
    shared = is_multi_model(environ)
    if len(homes := [home for home in model_homes(model_dir) if (home / "code").is_dir()]) > 1:
        names = ", ".join(home.name for home in homes[:5])
        raise ModelFilesError(f"{model_dir} holds several models with code ({names}): put one of them there")
    named = environ.get(PROGRAM_VARIABLE, "").strip()
    folders = list(dict.fromkeys(_folders(model_dir, environ)))
    places = ((folder, folder / name) for name in _file_names(named) for folder in folders)
    source, file = next((place for place in places if place[1].is_file()), (None, None))
    if file is None:
        if not named or shared:
            return NoHandler()
        if Path(named).is_absolute() or ".." in Path(named).parts:
            raise ModelFilesError(f"{PROGRAM_VARIABLE} is `{named}`: it must be a file inside the model's code folder")
        looked = ", ".join(map(str, folders))
        raise ModelFilesError(f"{PROGRAM_VARIABLE} is `{named}`, and there is no such file in {looked}: pack it there")
    if file.suffix != ".py":
        return NoHandler(f"{file} is not a Python file, and is not run")
    functions = _functions(file)
    if not functions:
        return NoHandler(f"{file} has none of {', '.join(FUNCTIONS)}, and is not run")
    return UserCode(file, functions, None if source == file.parent else source)


def is_multi_model(environ: Mapping[str, str]) -> bool:
    """Whether this is a multi-model endpoint. The server has already refused values other than true and false."""
    return environ.get(MULTI_VARIABLE, "").strip().lower() == "true"


def _folders(model_dir: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """The folders to search for the handler, in order."""
    shared = is_multi_model(environ)
    submit_directory = environ.get(SUBMIT_VARIABLE, "").strip()
    if submit_directory and not shared and not submit_directory.startswith(S3):
        yield Path(submit_directory.removeprefix("file://"))
    yield model_dir / "code"
    for home in model_homes(model_dir):
        yield home / "code"
    if not shared:
        yield model_dir.parent / "code"


def _file_names(named: str) -> list[str]:
    """Possible names of the program in a code folder, likeliest first. In local mode the SDK packs a file without its
    folders, but names it with its path on the user's machine.
    """
    path = Path(named or DEFAULT_PROGRAM)
    inside = [] if path.is_absolute() or ".." in path.parts else [str(path)]
    names = dict.fromkeys([*inside, path.name])
    return [each for name in names for each in (name, *([] if name.endswith(".py") else [f"{name}.py"]))]


def _functions(file: Path) -> frozenset[str]:
    """The handler's functions that the file's top level defines, assigns or imports.

    All of them if the file has `import *` and either defines one of them or is called inference.py; with any other name
    it may be a training program.
    """
    try:
        module = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise ModelFilesError(f"{file} is not valid Python: {error}") from error
    bound: set[str] = set()
    for node in _top_level(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.ImportFrom(names=names):
                bound |= {alias.asname or alias.name for alias in names}
            case _:
                pass
    functions = frozenset(bound.intersection(FUNCTIONS))
    if "*" in bound and (functions or file.name == DEFAULT_PROGRAM):
        return frozenset(FUNCTIONS)
    return functions


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module outside its functions and classes, including those in `if` and `try`."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(child)


_FILES, _DEPTH = 2000, 4
_SKIPPED = ("__pycache__", "site-packages", "node_modules", "venv")
_ARCHIVES = ("code.zip", "code.tar.gz", "code.tgz", "sourcedir.tar.gz", "model.tar.gz", "inference.zip")
_OTHER_NAMES = {
    "load_model": "model_fn",
    "load_fn": "model_fn",
    "init": "model_fn",
    "preprocess": "input_fn",
    "preprocess_fn": "input_fn",
    "postprocess": "output_fn",
    "postprocess_fn": "output_fn",
    "predict": "predict_fn",
    "inference": "predict_fn",
    "inference_fn": "predict_fn",
    "handle": "transform_fn",
    "handler": "transform_fn",
    "lambda_handler": "transform_fn",
    "transform": "transform_fn",
}
"""Functions of other servers → the one of a handler that does the same."""
_LIKENESS = 0.75


def unused_files(model_dir: Path, code: UserCode | NoHandler) -> list[str]:
    """Warnings about files and functions without effect."""
    lines: list[str] = []
    for path in _files(model_dir):
        if path.suffix == ".py" and isinstance(code, UserCode):
            if path.name == DEFAULT_PROGRAM and path != code.file:  # others may be modules of the handler
                lines.append(f"{path} is not run, because {code.file} is: delete one of the two")
        elif path.suffix == ".py":
            lines += _program(path, model_dir)
        elif path.name.lower() in ("requirements.txt", "requirement.txt"):
            lines += _requirements(path, code)
        elif path.parent == model_dir and (path.name in _ARCHIVES or path.suffix == ".mar"):
            lines.append(f"{path} is not unpacked: put its files into {model_dir}/code/ as they are")
    return [*lines, *(_nearly_named(code.file) if isinstance(code, UserCode) else ())]


def _files(model_dir: Path) -> Iterator[Path]:
    """The model's files, those at the top first."""
    for count, (folder, folders, files) in enumerate(os.walk(model_dir)):
        depth = len(Path(folder).relative_to(model_dir).parts)
        kept = (name for name in folders if name not in _SKIPPED and not name.startswith("."))
        folders[:] = sorted(kept) if depth < _DEPTH and count < _FILES else []
        yield from (Path(folder, name) for name in sorted(files)[:_FILES])


def _program(path: Path, model_dir: Path) -> list[str]:
    """A warning about a Python file that was probably meant to be the handler, in a model without one."""
    folders = [home / "code" for home in (model_dir, *model_homes(model_dir))]
    if _defined(_parsed(path)) & set(FUNCTIONS) or (path.name == DEFAULT_PROGRAM and path.parent not in folders):
        if path.is_relative_to(folders[0]):
            return [f"{path} is not run: set {PROGRAM_VARIABLE} to {path.relative_to(folders[0])}"]
        return [f"{path} is not run: put it into code/ as {DEFAULT_PROGRAM}"]
    # Any other program, such as the one that trained the model, may have such functions for its own use.
    return _nearly_named(path) if path.name in (DEFAULT_PROGRAM, "handler.py") else []


def _requirements(path: Path, code: UserCode | NoHandler) -> list[str]:
    """A warning about a requirements file that is not installed."""
    if not path.read_text("utf-8", "replace").strip():
        return []
    if isinstance(code, UserCode):
        installed = code.requirements
        if path == installed:
            return []
        todo = f"{installed} is, put its lines there" if installed else f"move it to {code.folder / REQUIREMENTS}"
        return [f"{path} is not installed: {todo}"]
    if path.parent.name == "code" and any(path.parent.glob("*.py")):
        return []  # its program is not run, and another warning names that
    return [f"{path} is not installed: put it into code/, next to an {DEFAULT_PROGRAM}"]


def _nearly_named(path: Path) -> list[str]:
    """Warnings about functions whose names are nearly those of a handler, and that the file does not use itself."""
    tree = _parsed(path)
    defined = _defined(tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    lines = []
    for name in sorted(defined - set(ARGUMENTS) - used):
        near = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=_LIKENESS)
        meant = _OTHER_NAMES.get(name) or next(iter(near), "")
        if meant and meant not in defined:
            lines.append(f"{path}: {name} is not called; if it is meant to be {meant}, rename it")
    return lines


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _defined(tree: ast.Module) -> set[str]:
    """The names of the functions that a file defines."""
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
