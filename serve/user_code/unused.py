"""Files of a model that have no effect: a line for each, with what to do. They are read, not run."""

import ast
import difflib
import os
from collections.abc import Iterator
from pathlib import Path

from berth.contract.model_files import model_homes
from berth.serve.user_code.calls import ARGUMENTS
from berth.serve.user_code.find import DEFAULT_PROGRAM, FUNCTIONS, REQUIREMENTS, NoHandler, UserCode

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
_TORCHSERVE = {"initialize", "inference", "handle", "preprocess", "postprocess"}
_LIKENESS = 0.75


def unused_files(model_dir: Path, code: UserCode | NoHandler, named: str = "") -> list[str]:
    """What has no effect, for the log. `named`: the program that SAGEMAKER_PROGRAM names."""
    lines: list[str] = []
    for path in _files(model_dir):
        if path.is_symlink() and not path.exists():
            lines.append(f"{path} is a link to {os.readlink(path)}, which is not there: pack the file itself")
        elif path.suffix == ".py" and isinstance(code, UserCode):
            lines += _second_program(path, code)
        elif path.suffix == ".py":
            lines += _program(path, model_dir, named)
        elif path.name.lower() in ("requirements.txt", "requirement.txt"):
            lines += _requirements(path, code)
        elif path.parent == model_dir and (path.name in _ARCHIVES or path.suffix == ".mar"):
            lines.append(f"{path} is not unpacked: put its files into {model_dir}/code/ as they are")
    return [*lines, *(_nearly_named(code.file) if isinstance(code, UserCode) else ())]


def _files(model_dir: Path) -> Iterator[Path]:
    """Files and links that lead nowhere, those at the top first."""
    for count, (folder, folders, files) in enumerate(os.walk(model_dir)):
        depth = len(Path(folder).relative_to(model_dir).parts)
        kept = (name for name in folders if name not in _SKIPPED and not name.startswith("."))
        folders[:] = sorted(kept) if depth < _DEPTH and count < _FILES else []
        yield from (Path(folder, name) for name in sorted(files)[:_FILES])


def _second_program(path: Path, code: UserCode) -> list[str]:
    """An inference.py besides the handler that runs. Other files may be modules of the handler."""
    if path.name != DEFAULT_PROGRAM or path == code.file:
        return []
    return [f"{path} is not run, because {code.file} is: delete one of the two"]


def _program(path: Path, model_dir: Path, named: str) -> list[str]:
    """A Python file that was meant to be the handler, of a model that has none."""
    tree = _parsed(path)
    functions = _functions(tree) & set(FUNCTIONS)
    folders = [home / "code" for home in (model_dir, *model_homes(model_dir))]
    if path.name == DEFAULT_PROGRAM and path.parent not in folders:
        inside = path.is_relative_to(folders[0])
        where = f"set SAGEMAKER_PROGRAM to {path.relative_to(folders[0])}" if inside else "put it into code/"
        return [f"{path} is not run: {where}"]
    if path.name == DEFAULT_PROGRAM and functions:
        return [f"{path} is not run: SAGEMAKER_PROGRAM names {named}; set it to {DEFAULT_PROGRAM}"]
    if functions:
        names = " and ".join(sorted(functions))
        return [f"{path} has {names} and is not run: rename it to code/{DEFAULT_PROGRAM}, or set SAGEMAKER_PROGRAM"]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if any(node.name == "EndpointHandler" for node in classes):
        return [
            f"{path} is a handler of Hugging Face's Inference Endpoints and is not run: write a code/{DEFAULT_PROGRAM} "
            "whose model_fn(model_dir) returns EndpointHandler(model_dir) and whose predict_fn(data, model) returns "
            "model(data)"
        ]
    if any(len(_functions(node) & _TORCHSERVE) > 1 or "BaseHandler" in _bases(node) for node in classes):
        return [
            f"{path} is a handler of TorchServe and is not run: write a code/{DEFAULT_PROGRAM} whose "
            "model_fn(model_dir) does what initialize does, and whose predict_fn(data, model) does what inference does"
        ]
    # Other programs, such as one that trained, may have such functions for themselves.
    return _nearly_named(path) if path.name in (DEFAULT_PROGRAM, "handler.py") else []


def _requirements(path: Path, code: UserCode | NoHandler) -> list[str]:
    """A requirements file that is not installed."""
    if not path.read_text("utf-8", "replace").strip():
        return []
    if isinstance(code, UserCode):
        wanted = code.requirements
        if path == wanted:
            return []
        todo = f"{wanted} is, put its lines there" if wanted else f"move it to {code.folder / REQUIREMENTS}"
        return [f"{path} is not installed: {todo}"]
    if path.parent.name == "code" and any(path.parent.glob("*.py")):
        return []  # of a program that is not run, which is said already
    return [f"{path} is not installed: put it into code/, next to an {DEFAULT_PROGRAM}"]


def _nearly_named(path: Path) -> list[str]:
    """Functions of a file that it does not call itself, and whose names are nearly those of a handler's."""
    tree = _parsed(path)
    found = _functions(tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    lines = []
    for name in sorted(found - set(ARGUMENTS) - used):
        near = difflib.get_close_matches(name.lower(), FUNCTIONS, n=1, cutoff=_LIKENESS)
        meant = _OTHER_NAMES.get(name) or next(iter(near), "")
        if meant and meant not in found:
            lines.append(f"{path}: {name} is not called; if it is meant to be {meant}, rename it")
    return lines


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _functions(tree: ast.Module | ast.ClassDef) -> set[str]:
    """Those that a file or a class defines itself."""
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(each).rpartition(".")[2] for each in node.bases}
