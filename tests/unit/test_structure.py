"""The structure of the source: which folder imports which, and how large a file, a function and its parameters may be.

bench/code_metrics.py counts; the limits stand here. docs/architecture.md draws the arrows.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from berth.images import pins

ALLOWED_IMPORTS = {
    "common": set(),
    "contract": set(),
    "qa": set(),
    "runtime": {"contract", "qa"},
    "train": {"contract", "qa", "runtime"},
    "serve": {"contract", "qa", "runtime"},
    "images": {"common"},
    "ecr": {"common", "images"},
    "local": {"contract", "common", "images", "qa"},
    "build.py": {"common", "images", "ecr", "local"},
    "sample": set(),
    "docker": set(),
}
"""Folder → the folders that it may import, besides itself. A new folder gets a row; an arrow more is a decision."""
LINES_OF_A_FILE, LINES_OF_A_FUNCTION, PARAMETERS = 400, 60, 6


@pytest.fixture(scope="module")
def metrics() -> Any:
    """bench/code_metrics.py, which is in no package."""
    spec = spec_from_file_location("bench_code_metrics", pins.ROOT / "bench" / "code_metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look there for what their annotations mean
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shipped(metrics: ModuleType) -> Any:
    """The files of the source that ships."""
    found = metrics.sources(pins.ROOT)
    assert len(found) > 100
    return found


def test_a_folder_imports_only_what_it_may(metrics: Any, shipped: Any) -> None:
    assert {source.folder for source in shipped} <= set(ALLOWED_IMPORTS), "a new folder says here what it may import"
    wrong = [
        f"{each.where}: {each.folder} imports {each.module}"
        for each in metrics.imports(shipped)
        if each.target and each.target not in {each.folder, *ALLOWED_IMPORTS[each.folder]}
    ]
    assert not wrong, "\n".join(wrong)


def test_ours_is_imported_by_its_whole_name(metrics: Any, shipped: Any) -> None:
    """Never bare, for a user's own train.py or qa.py would be found in its place, and never relative."""
    ours = {source.folder for source in shipped} - {"build.py", "docker"}  # docker is the engine's SDK
    bare = [
        f"{each.where}: {each.module}"
        for each in metrics.imports(shipped)
        if each.module.startswith(".") or each.module.partition(".")[0] in ours or each.module == "berth"
    ]
    assert not bare, "\n".join(bare)


def test_contract_needs_nothing_but_the_standard_library(metrics: Any, shipped: Any) -> None:
    """A user's machine and both images read it, and have no package in common."""
    foreign = [
        f"{each.where}: {each.module}"
        for each in metrics.imports(shipped)
        if each.folder == "contract"
        and not each.target
        and each.module.partition(".")[0] not in sys.stdlib_module_names
    ]
    assert not foreign, "\n".join(foreign)


def test_an_import_keeps_its_name(metrics: Any, shipped: Any) -> None:
    """Who greps for a module or a function finds all of its users."""
    renamed = metrics.aliases(shipped)
    assert not renamed, "\n".join(renamed)


def test_no_class_name_stands_in_two_files(metrics: Any, shipped: Any) -> None:
    twice = metrics.classes_twice(shipped)
    assert not twice, "\n".join(f"{name}: {', '.join(where)}" for name, where in twice.items())


def test_files_and_functions_stay_small(metrics: Any, shipped: Any) -> None:
    large = [
        f"{source.path}: {source.lines} lines, {LINES_OF_A_FILE} at most"
        for source in shipped
        if source.lines > LINES_OF_A_FILE
    ]
    for source, function in metrics.functions(shipped):
        where = f"{source.path}:{function.lineno}: {function.name}"
        if metrics.length(function) > LINES_OF_A_FUNCTION:
            large.append(f"{where} has {metrics.length(function)} lines, {LINES_OF_A_FUNCTION} at most")
        if metrics.parameters(function) > PARAMETERS and not metrics.is_command(function):
            large.append(f"{where} has {metrics.parameters(function)} parameters, {PARAMETERS} at most")
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
def test_every_way_to_import_is_seen(text: str, modules: list[str], metrics: Any, tmp_path: Path) -> None:
    source = metrics.Source(Path("images/new.py"), 1, metrics.ast.parse(text))
    found = list(metrics.imports([source]))
    assert [each.module for each in found] == modules
    assert found[0].where == f"images/new.py:{text.count(chr(10)) + 1}"
    assert [each.target for each in found] == [module.split(".")[1] if "berth" in module else "" for module in modules]
