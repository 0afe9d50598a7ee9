"""A missing module that is in the user's source folder, where Python does not look for it."""

import os
from collections.abc import Iterator
from pathlib import Path

from berth.contract import variables
from berth.contract.nearest import close_match
from berth.runtime.hints.program import ProgramContext
from berth.runtime.hints.replaced_packages import normalised, requirement_lines

_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_PROJECT_SOURCES = ("src", "lib", "python")
_SKIPPED = ("site-packages", "__pycache__", "node_modules", "build")
_FOLDERS = 1000


def hint(top: str, context: ProgramContext) -> str:
    """The hint for a module that the source folder has in another place or under a similar name."""
    code_dir = context.code_dir
    modules, name = list(_modules(code_dir)), normalised(top)
    if place := next((path for path in modules if path.stem == top), None):
        return _elsewhere(top, place.parent.relative_to(code_dir), context)
    if wheel := next(
        (path.name for path in code_dir.glob("*.whl") if normalised(path.name.partition("-")[0]) == name), None
    ):
        return f"; put the line ./{wheel} into requirements.txt: the wheel is in your source folder and not installed"
    if listed := _listed_elsewhere(top, code_dir):
        other = "" if context.serving else f", or set the job's variable {variables.REQUIREMENTS} to {listed}"
        return (
            f"; {listed} lists it, and only the requirements.txt at the top of your source folder is installed: move "
            f"it there{other}"
        )
    if path := next((path for path in modules if normalised(path.stem) == name), None):
        return _nearly(top, path, code_dir)
    names = sorted({path.stem for path in modules if path.parent == code_dir})
    near = close_match(top, names)
    return f"; did you mean your own {near}?" if near else ""


def is_own(top: str, context: ProgramContext) -> bool:
    """Whether the source folder has such a module at its top, where Python looks for it."""
    return (context.code_dir / f"{top}.py").is_file() or (context.code_dir / top).is_dir()


def single_file(module: str, context: ProgramContext) -> str:
    """The start of a hint if the job got only one Python file: the module may be another file of the user."""
    modules = list(_modules(context.code_dir))
    if len(modules) != 1:
        return ""
    if context.serving:
        return f"; if {module} is a file of yours, pack it into code/ too; otherwise"
    return (
        f"; if {module} is a file of yours, give the job the folder that has it (source_dir, or --code): it got "
        f"{modules[0].name} alone; otherwise"
    )


def _modules(code_dir: Path) -> Iterator[Path]:
    """Python files and folders with Python files, top folders first."""
    for _, (folder, folders, files) in zip(range(_FOLDERS), os.walk(code_dir), strict=False):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py") and name != "__init__.py")
        yield from (path for name in folders if any((path := Path(folder, name)).glob("*.py")))


def _elsewhere(module: str, parent: Path, context: ProgramContext) -> str:
    """The hint for a module in the folder `parent`, relative to the source folder."""
    where = f"; {module} is in {parent}/ of your source folder"
    project = next((name for name in _PROJECT_FILES if (context.code_dir / name).is_file()), None)
    if project == "setup.py":  # berth installs such a project without a line in requirements.txt
        return (
            f'{where}, and setup.py does not install it: give setup() package_dir={{"": "{parent}"}} and '
            f'packages=find_packages("{parent}")'
        )
    if project and parent.parts[0] in _PROJECT_SOURCES:
        return f'{where} and is not installed: put a line "." into requirements.txt'
    path = f"set the {context.owner}'s variable PYTHONPATH to {context.code_dir / parent}"
    if all(part.isidentifier() for part in parent.parts):
        path = f"import it as {'.'.join(parent.parts)}.{module}, or {path}"
    return f"{where}, where Python does not look: {path}"


def _nearly(module: str, path: Path, code_dir: Path) -> str:
    """The hint for a name that differs only in case or in - and _; file systems of Windows and macOS ignore case."""
    shown = path.relative_to(code_dir)
    if path.stem.isidentifier():
        return f"; your source folder has {shown}: capitals count, import {'.'.join(shown.with_suffix('').parts)}"
    return f"; your source folder's {shown} can't be imported: rename it to {module}{path.suffix}"


def _listed_elsewhere(module: str, code_dir: Path) -> str:
    """Another requirements file that has a package of this name; "" if there is none."""
    for path in sorted(code_dir.glob("*/**/requirements*.txt")) + sorted(code_dir.glob("requirements[-_.]?*.txt")):
        if normalised(module) in requirement_lines(path.read_text("utf-8", "replace")):
            return str(path.relative_to(code_dir))
    return ""
