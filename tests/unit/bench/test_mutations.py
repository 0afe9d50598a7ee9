"""Mutations of a source by bench/mutations.py, and the tests that run for a file."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench import mutations
from berth.images.pins import pins

SOURCE = """\
\"\"\"The é takes two bytes.\"\"\"
LIMIT = 3  # é
def check(value, text):
    text.append("é"); log(text)
    if value > LIMIT and value != 0:
        return f"{value + 1} é"
    return None
"""
AFTER = {
    "number": ["LIMIT = 4  # é", "if value > LIMIT and value != 1:"],
    "call": ["    pass; log(text)", '    text.append("é"); pass'],
    "comparison": ["if (value <= LIMIT) and value != 0:", "if value > LIMIT and (value == 0):"],
    "and/or": ["if (value > LIMIT or value != 0):"],
    "condition": ["if (not (value > LIMIT and value != 0)):"],
    "return": ["        return None"],
}


def test_each_mutation_changes_one_place() -> None:
    changed_lines: dict[str, list[str]] = {}
    for mutation in mutations.mutations(Path("x.py"), SOURCE.encode()):
        lines = zip(mutation.apply(SOURCE.encode()).decode().splitlines(), SOURCE.splitlines(), strict=True)
        [(number, changed)] = [(number, new) for number, (new, old) in enumerate(lines, 1) if new != old]
        assert mutation.line == number
        changed_lines.setdefault(mutation.kind, []).append(changed)
    assert {kind: [line.strip() for line in lines] for kind, lines in changed_lines.items()} == {
        kind: [line.strip() for line in lines] for kind, lines in AFTER.items()
    }


def test_mutation_knows_the_lines_of_its_statement() -> None:
    source = b"first = 1\ncall(\n    first,\n    last=2,\n)\n"
    lines = {(each.kind, each.line): (each.first, each.last) for each in mutations.mutations(Path("x.py"), source)}
    assert lines == {("number", 1): (1, 1), ("call", 2): (2, 5), ("number", 4): (2, 4)}


def test_tests_that_executed_a_line_come_from_the_database_of_coverage(tmp_path: Path) -> None:
    database = tmp_path / ".coverage"
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(
            "CREATE TABLE file (id, path); CREATE TABLE context (id, context);"
            "CREATE TABLE line_bits (file_id, context_id, numbits);"
            "INSERT INTO file VALUES (1, '/b.py'), (2, '/c.py');"
            "INSERT INTO context VALUES (1, ''), (2, 'test_b.py::test_two[a|b]|run'), (3, 'test_b.py::test_one|setup');"
            # lines 1 and 9; 9 and 10; 2
            "INSERT INTO line_bits VALUES (1, 1, x'0202'), (1, 2, x'0006'), (1, 3, x'04'), (2, 3, x'0006');"
        )
    assert mutations.covering(database, Path("/b.py"), [9]) == ["test_b.py::test_two[a|b]"]
    assert mutations.covering(database, Path("/b.py"), [2, 10]) == ["test_b.py::test_one", "test_b.py::test_two[a|b]"]
    assert mutations.covering(database, Path("/b.py"), [1, 400]) == []


def test_tests_that_import_the_module_run_first(tmp_path: Path) -> None:
    tests = tmp_path / "tests/unit"
    tests.mkdir(parents=True)
    (tests / "test_a.py").write_text("from serve.workers import memory, pool\n")
    (tests / "test_b.py").write_text("import re\nfrom serve.workers.pool import Pool\n")
    (tests / "test_c.py").write_text("from other import pool\nfrom serve.workers import pools\n")
    found = mutations.importers(Path("serve/workers/pool.py"), tmp_path)
    assert found == ["tests/unit/test_a.py", "tests/unit/test_b.py"]


def test_file_has_the_nearest_test_folder_that_mirrors_its_own(tmp_path: Path) -> None:
    for folder in ("tests/unit/serve/workers", "tests/unit/images", "smdistributed/tests"):
        (tmp_path / folder).mkdir(parents=True)
    for path, tests in {
        "serve/workers/pool.py": ["tests/unit/serve/workers"],
        "serve/models/registry.py": ["tests/unit/serve"],
        "berth/images/pins/pins.py": ["tests/unit/images"],
        "build.py": [],
        "smdistributed/src/smdistributed/dataparallel/torch/ranks.py": ["smdistributed/tests"],
    }.items():
        assert mutations.mirror(Path(path), tmp_path) == tests


@pytest.mark.slow
def test_mutation_is_found_if_a_test_fails_that_passes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the tests need no plugins, which are slow to import
    monkeypatch.setattr(mutations, "covering", lambda *_: ["test_a.py::test_it"])
    (tmp_path / ".venv").symlink_to(pins.ROOT / ".venv")
    test, file = tmp_path / "test_a.py", tmp_path / "b.py"
    file.write_text("VALUE = 1\n")
    os.utime(file, (0, 0))  # as in a clone, whose environment takes minutes
    (mutation,) = mutations.mutations(Path("b.py"), file.read_bytes())
    for asserted, expected in (
        ("b.VALUE == 1", mutations.FOUND),
        ("b.VALUE", mutations.MISSED),
        ("b.VALUE == 3", mutations.FAILS_ANYWAY),
    ):
        test.write_text(f"import b\ndef test_it(): assert {asserted}\n")
        assert mutations.outcome(tmp_path, mutation, tmp_path / "none", 600) == expected
        assert file.read_text() == "VALUE = 1\n"
