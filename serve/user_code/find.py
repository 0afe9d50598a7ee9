"""Which file is the user's handler. A look at files only: nothing of it is imported.

A model.tar.gz brings it as code/inference.py; the SDK names the folder and the file in variables. Where an estimator is
deployed, that file is the program of its training job, which would train were it imported: a file counts as a handler
only if its text has one of the functions.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.contract.model_files import model_homes
from berth.runtime.engines.model_folder import ModelFilesError

PROGRAM_VARIABLE = "SAGEMAKER_PROGRAM"
SUBMIT_VARIABLE = "SAGEMAKER_SUBMIT_DIRECTORY"
DEFAULT_PROGRAM = "inference.py"
MULTI_VARIABLE = "SAGEMAKER_MULTI_MODEL"
REQUIREMENTS = "requirements.txt"
S3 = "s3://"
FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn")


@dataclass(frozen=True, slots=True)
class UserCode:
    """A handler: its file, and which of the functions it has (all of them where only running it would tell).

    source: the source folder, if the file is in a folder of it (SAGEMAKER_PROGRAM `src/inference.py`).
    """

    file: Path
    functions: frozenset[str]
    source: Path | None = None

    @property
    def folder(self) -> Path:
        """The source folder: the model's code/, or the one that the SDK names."""
        return self.source or self.file.parent

    def model_dir(self, folder: Path) -> Path:
        """What a model_fn gets of `folder`, the model's: the folder in it that holds the model and its code/, if the
        archive was packed with it.
        """
        return next((home for home in model_homes(folder) if self.file.is_relative_to(home / "code")), folder)

    @property
    def requirements(self) -> Path | None:
        """The requirements.txt at the top of the source folder, else the one next to the file; None without text."""
        paths = (folder / REQUIREMENTS for folder in (self.folder, self.file.parent))
        return next((path for path in paths if path.is_file() and path.read_text("utf-8", "replace").strip()), None)


@dataclass(frozen=True, slots=True)
class NoHandler:
    """The image answers itself. `reason`: which file is not run and why, for the log; empty where there is none."""

    reason: str = ""


def find_code(model_dir: Path, environ: Mapping[str, str]) -> UserCode | NoHandler:
    """The handler, if there is one; ModelFilesError for a file that is named and not there, or is no Python.

    What an s3:// address names is fetched before (berth.serve.user_code.fetch). On a multi-model endpoint the variables
    are those of all models, of which some may have no code.
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
        return NoHandler(f"{file} is no Python file, and is not run")
    functions = _functions(file, source or file.parent)
    if not functions:
        return NoHandler(f"{file} has none of {', '.join(FUNCTIONS)}, and is not run")
    return UserCode(file, functions, None if source == file.parent else source)


def is_multi_model(environ: Mapping[str, str]) -> bool:
    """Whether this container is to hold many models; the server has refused any other word before."""
    return environ.get(MULTI_VARIABLE, "").strip().lower() == "true"


def _folders(model_dir: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where it may lie, in the order in which it is looked for."""
    shared = is_multi_model(environ)
    given = environ.get(SUBMIT_VARIABLE, "").strip()
    if given and not shared and not given.startswith(S3):
        yield Path(given.removeprefix("file://"))
    yield model_dir / "code"
    for home in model_homes(model_dir):
        yield home / "code"
    if not shared:
        yield model_dir.parent / "code"


def _file_names(named: str) -> list[str]:
    """What the program may be called in a code folder, likeliest first. In local mode the SDK packs a file without its
    folders, and names it with those that it has on the user's machine.
    """
    path = Path(named or DEFAULT_PROGRAM)
    inside = [] if path.is_absolute() or ".." in path.parts else [str(path)]
    names = dict.fromkeys([*inside, path.name])
    return [each for name in names for each in (name, *([] if name.endswith(".py") else [f"{name}.py"]))]


def _functions(file: Path, source: Path) -> frozenset[str]:
    """Those of the handler's functions that the file's top level binds: by def, by assignment or by import.

    All of them where `import *` of a module that is not in the source folder may bind others, or, in an inference.py,
    any: a file by another name may be a program that trains.
    """
    bound = _bound_names(file, (file.parent, source), frozenset())
    found = bound & frozenset(FUNCTIONS)
    if "*" in bound and (found or file.name == DEFAULT_PROGRAM):
        return frozenset(FUNCTIONS)
    return found


def _bound_names(file: Path, roots: Sequence[Path], importing: frozenset[Path]) -> frozenset[str]:
    """What a module's top level binds, and "*" if it imports all of a module that is not below `roots`, from which
    modules are imported; `importing` are those that are being looked into.
    """
    try:
        module = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise ModelFilesError(f"{file} is no Python that can be run: {error}") from error
    found: set[str] = set()
    for node in _top_level(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.ImportFrom(names=[ast.alias(name="*")]):
                imported = _module_file(node, file, roots)
                if imported is None:
                    found.add("*")
                elif imported not in importing:
                    found |= _bound_names(imported, roots, importing | {file})
            case ast.ImportFrom(names=names):
                found |= {alias.asname or alias.name for alias in names}
            case _:
                pass
    return frozenset(found)


def _module_file(node: ast.ImportFrom, file: Path, roots: Sequence[Path]) -> Path | None:
    """That of the module which is imported from, if it is below one of `roots`."""
    folders = [file.parents[node.level - 1]] if node.level else roots
    paths = [folder.joinpath(*(node.module or ".").split(".")) for folder in folders]
    files = (each for path in paths for each in (path / "__init__.py", path.with_suffix(".py")))
    return next((each for each in files if each.is_file()), None)


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a module outside of its functions and classes, `if` and `try` included."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(child)
