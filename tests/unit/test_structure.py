"""The structure of the source: which folder imports which, and how large a file, a function and its parameters may be.

bench/code_metrics.py counts; this file has the limits. docs/architecture.md draws the arrows.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

from bench import code_metrics
from bench.code_metrics import Source
from berth.images.pins import pins

ALLOWED_IMPORTS = {
    "common": set(),
    "contract": set(),
    "qa": {"contract"},
    "runtime": {"contract", "qa"},
    "train": {"contract", "qa", "runtime", "smdistributed"},
    "serve": {"contract", "qa", "runtime"},
    "images": {"common", "contract"},
    "ecr": {"common", "contract", "images"},
    "local": {"contract", "common", "images", "qa"},
    "build.py": {"common", "images", "ecr", "local"},
    "smdistributed": set(),
    "berth": set(),
    "docker": set(),
}
"""Folder → the folders that it may import, besides itself. A new folder needs a row; extend a row only if you must."""
FLOORS = {
    "train": ("entry", "sdk3", "launching", "planning", "hosts", "failures", "startup"),
    "images": ("commands", "profiles", "build", "locks", "network", "pins"),
    "local": ("commands", "demo", "serve", "session"),
    "ecr": ("commands", "push", "repositories", "registry"),
    "serve": ("entry", "http", "models", "workers", "user_code", "pipeline", "configuration", "questions", "observing"),
}
"""Folder → its parts in order: each imports only parts that come after it."""
ON_ITS_OWN = {"train": {"run_qa"}}
"""Parts of a folder that import no other part of it: run_qa is a program like a user's own."""
LINES_OF_A_FILE, LINES_OF_A_FUNCTION, PARAMETERS = 400, 60, 6


@pytest.fixture(scope="module")
def shipped() -> list[Source]:
    """The files of the source that ships."""
    found = code_metrics.sources(pins.ROOT)
    assert len(found) > 100
    return found


def test_folders_import_only_allowed_folders(shipped: list[Source]) -> None:
    assert {source.folder for source in shipped} <= set(ALLOWED_IMPORTS), "add the new folder to ALLOWED_IMPORTS"
    wrong = [
        f"{each.where}: {each.folder} imports {each.module}"
        for each in code_metrics.imports(shipped)
        if each.target and each.target not in {each.folder, *ALLOWED_IMPORTS[each.folder]}
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_have_no_circles(shipped: list[Source]) -> None:
    """This applies to folders and modules at every level, and to imports inside functions."""
    assert code_metrics.import_cycles(shipped) == []


@pytest.mark.parametrize("folder", FLOORS)
def test_parts_of_a_folder_import_downwards(shipped: list[Source], folder: str) -> None:
    floors = FLOORS[folder]
    parts = [
        (each, source[1], target[1])
        for each, source, target in code_metrics.inner_imports(shipped)
        if source[0] == target[0] == folder and len(source) > 1 and len(target) > 1
    ]
    assert {source for _, source, _ in parts} >= set(floors[:-1])
    wrong = [
        f"{each.where}: {each.module}"
        for each, source, target in parts
        if {source, target} <= set(floors) and floors.index(target) < floors.index(source)
    ]
    alone = ON_ITS_OWN.get(folder, set())
    wrong += [f"{each.where}: {each.module}" for each, source, target in parts if source in alone and target != source]
    assert not wrong, "\n".join(wrong)


def test_own_modules_are_imported_by_full_name(shipped: list[Source]) -> None:
    """Imports start with `berth.`: Python could find a user's own train.py or qa.py instead. They are never relative.

    smdistributed is exempt: in the image it is a top-level package.
    """
    ours = {source.folder for source in shipped} - {"build.py", "docker", "berth"}  # docker is the engine's SDK
    bare = [
        f"{each.where}: {each.module}"
        for each in code_metrics.imports(shipped)
        if (each.module.startswith(".") or each.module.partition(".")[0] in ours or each.module == "berth")
        and not each.where.startswith("smdistributed/")
    ]
    assert not bare, "\n".join(bare)


def test_contract_imports_only_the_standard_library(shipped: list[Source]) -> None:
    """The user's machine and both images import contract/, and they have no package in common."""
    foreign = [
        f"{each.where}: {each.module}"
        for each in code_metrics.imports(shipped)
        if each.folder == "contract"
        and not each.target
        and each.module.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert not foreign, "\n".join(foreign)


def test_imports_are_not_renamed(shipped: list[Source]) -> None:
    """So grep finds all users of a module or function."""
    renamed = code_metrics.aliases(shipped)
    assert not renamed, "\n".join(renamed)


def test_class_names_are_unique(shipped: list[Source]) -> None:
    twice = code_metrics.duplicate_classes(shipped)
    assert not twice, "\n".join(f"{name}: {', '.join(where)}" for name, where in twice.items())


def test_init_docstrings_name_every_module(shipped: list[Source]) -> None:
    missing = []
    for source in [each for each in shipped if each.path.name == "__init__.py"]:
        page = ast.get_docstring(source.tree) or ""
        paths = [each.path for each in shipped if source.path.parent in each.path.parents]
        names = {path.relative_to(source.path.parent).parts[0].removesuffix(".py") for path in paths} - {"__init__"}
        missing += [f"{source.path}: {name}" for name in sorted(names) if not re.search(rf"\b{name}\b", page)]
    assert not missing, "\n".join(missing)


def test_files_and_functions_stay_small(shipped: list[Source]) -> None:
    large = [
        f"{source.path}: {source.lines} lines, {LINES_OF_A_FILE} at most"
        for source in shipped
        if source.lines > LINES_OF_A_FILE
    ]
    for source, function in code_metrics.functions(shipped):
        where = f"{source.path}:{function.lineno}: {function.name}"
        if code_metrics.length(function) > LINES_OF_A_FUNCTION:
            large.append(f"{where} has {code_metrics.length(function)} lines, {LINES_OF_A_FUNCTION} at most")
        if code_metrics.parameters(function) > PARAMETERS and not code_metrics.is_command(function):
            large.append(f"{where} has {code_metrics.parameters(function)} parameters, {PARAMETERS} at most")
    assert not large, "\n".join(large)


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("import berth.ecr.uri", ["berth.ecr.uri"]),
        ("from berth import ecr, images", ["berth.ecr", "berth.images"]),
        ("from berth.ecr.uri import a, b", ["berth.ecr.uri"]),
        ("def later() -> None:\n    from berth.ecr import uri", ["berth.ecr"]),
        ("from .ecr import uri", [".ecr"]),
        ("from . import uri", ["."]),
    ],
)
def test_code_metrics_finds_every_form_of_import(text: str, modules: list[str]) -> None:
    source = Source(Path("images/new.py"), 1, ast.parse(text))
    found = list(code_metrics.imports([source]))
    assert [each.module for each in found] == modules
    assert found[0].where == f"images/new.py:{text.count(chr(10)) + 1}"
    assert [each.target for each in found] == [module.split(".")[1] if "berth" in module else "" for module in modules]
