"""Which file is the user's handler. A look at files only: nothing of it is imported.

A model.tar.gz brings it as code/inference.py; the SDK names the folder and the file in variables. SageMaker's SDK also
names the program of the training job there when an estimator is deployed, so a file counts as a handler only if it has
one of the functions.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.contract.model_files import model_homes
from berth.runtime.engines.model_folder import ModelFilesError

PROGRAM_VARIABLE = "SAGEMAKER_PROGRAM"
SUBMIT_VARIABLE = "SAGEMAKER_SUBMIT_DIRECTORY"
DEFAULT_PROGRAM = "inference.py"
MULTI_VARIABLE = "SAGEMAKER_MULTI_MODEL"
S3 = "s3://"
FUNCTIONS = ("model_fn", "input_fn", "predict_fn", "output_fn", "transform_fn")


@dataclass(frozen=True, slots=True)
class UserCode:
    """A handler: its file, and which of the functions it has (all of them where only running it would tell)."""

    file: Path
    functions: frozenset[str]

    @property
    def folder(self) -> Path:
        """What is imported from."""
        return self.file.parent

    @property
    def requirements(self) -> Path | None:
        """Its requirements.txt, if it has one with something in it."""
        path = self.folder / "requirements.txt"
        return path if path.is_file() and path.read_text("utf-8", "replace").strip() else None


def find_code(model_dir: Path, environ: Mapping[str, str]) -> UserCode | None:
    """The handler, None where there is none; ModelFilesError for one that is named and not there, or is no Python.

    What an s3:// address names is fetched before (berth.serve.user_code.fetch). On a multi-model endpoint the variables
    are those of all models, of which some may have no code, and none may install packages for itself.
    """
    shared = is_multi_model(environ)
    named = environ.get(PROGRAM_VARIABLE, "").strip()
    program = named or DEFAULT_PROGRAM
    if Path(program).suffix != ".py":
        program += ".py"
    if Path(program).is_absolute() or ".." in Path(program).parts:
        raise ModelFilesError(f"{PROGRAM_VARIABLE} is `{named}`: it must be a file inside the model's code folder")
    folders = list(dict.fromkeys(_folders(model_dir, environ)))
    file = next((folder / program for folder in folders if (folder / program).is_file()), None)
    if file is None:
        if not named or shared:
            return None
        looked = ", ".join(map(str, folders))
        raise ModelFilesError(f"{PROGRAM_VARIABLE} is `{named}`, and there is no such file in {looked}: pack it there")
    functions = _functions(file)
    code = UserCode(file, functions)
    if shared and functions and code.requirements:
        raise ModelFilesError(
            f"{code.requirements} is not installed on a multi-model endpoint, where models share the container: build "
            "an image with these packages from this one, and leave the file out"
        )
    return code if functions else None


def is_multi_model(environ: Mapping[str, str]) -> bool:
    """Whether SageMaker says that this container is to hold many models; ModelFilesError where it says neither yes nor
    no, which the server is told before anything else asks.
    """
    text = environ.get(MULTI_VARIABLE, "").strip()
    if text.lower() not in ("", "true", "false"):
        raise ModelFilesError(f"{MULTI_VARIABLE} is `{text}`: it must be true or false")
    return text.lower() == "true"


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


def _functions(file: Path) -> frozenset[str]:
    """Those of the handler's functions that the file's top level binds: by def, by assignment or by import."""
    try:
        module = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        raise ModelFilesError(f"{file} is no Python that can be run: {error}") from error
    found: set[str] = set()
    for node in _top_level(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ImportFrom(names=names):
                if any(alias.name == "*" for alias in names):
                    return frozenset(FUNCTIONS)
                found |= {alias.asname or alias.name for alias in names}
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return frozenset(found) & frozenset(FUNCTIONS)


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a module outside of its functions and classes, `if` and `try` included."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(child)
