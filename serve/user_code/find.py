"""Finds the file of the user's handler. Files are parsed, never imported.

A model.tar.gz contains it as code/inference.py; the SDK names its folder and file in variables. If an estimator is
deployed, that file is its training program, and importing it would start training. So a file is a handler only if it
defines one of the handler's functions.
"""

import ast
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
