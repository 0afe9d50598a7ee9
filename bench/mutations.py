"""Mutations: how many of the faults that this program puts into the product do the unit tests find?

Usage: python -m bench.mutations [--count 60] [--seed 1] [--checkout FOLDER] > bench/results/DATE-mutations.md

A mutation changes one expression or statement of the product: a comparison, `and` or `or`, a number, a condition, a
`return` or a call. The selection depends on the seed and the source. All unit tests first run once in a clone of the
checked-out commit, with its own environment (`make setup-tests` and pytest-cov), to record which tests execute which
line. Each mutation is then made in the clone, and pytest runs the tests that executed its lines, then the test files
that import the module, then the folder of tests/unit that mirrors the module's folder, because processes that are
killed record nothing. It stops at the first failure. A mutation is found if a test fails whose file passes without the
mutation, and counts as not found after --limit seconds. Progress goes to stderr.
--checkout: another clone of this repository, to compare its commit.
"""

import ast
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import code_metrics, program, report
from berth.common.errors import UserError
from berth.images.pins import pins

OPPOSITES: dict[type[ast.AST], ast.AST] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Lt: ast.GtE(),
    ast.GtE: ast.Lt(),
    ast.Gt: ast.LtE(),
    ast.LtE: ast.Gt(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.And: ast.Or(),
    ast.Or: ast.And(),
}
LIBRARY = code_metrics.OPEN_LIBRARY[0]
FOUND, MISSED, TIMED_OUT = "found", "not found", "not found in time"
FAILS_ANYWAY, NO_TEST = "a test fails without it, too", "executed by no test"
PYTEST = ("-m", "pytest", "-q", "-ra", "-m", "not nightly", "-p", "no:cacheprovider")
COVERAGE = "pytest-cov==6.3.0"  # version 7 does not measure processes that a test starts
# One context per test; the data are read without coverage, which this environment lacks.
COVERED = ("--numprocesses=3", "--dist=loadfile", "--cov=.", "--cov-context=test", "--cov-report=")
COVERAGE_SETTINGS = "[run]\nomit =\n    .venv*/*\n    tests/*\n    smdistributed/tests/*\n    bench/*\n"


@dataclass(frozen=True, slots=True)
class Mutation:
    """`after` replaces the bytes of a file from `start` to `end`.

    `first` is the first line of the statement, `last` the last line that is replaced.
    """

    path: Path
    line: int
    first: int
    last: int
    kind: str
    start: int
    end: int
    after: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def row(self, source: bytes, result: str, seconds: float) -> str:
        """A row of the table."""
        before = source[self.start : self.end].decode()
        shown = [f"`{' '.join(text.split())[:100]}`" for text in (before, self.after)]
        return report.row(f"{self.path}:{self.line}", self.kind, *shown, result, f"{seconds:.0f}")


def replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST, str]]:
    """The mutations of a node: kind, the node to replace, and the text to put in its place."""
    match node:
        case ast.Compare(left, [operator, *others], comparators):
            mutated: ast.expr = ast.Compare(left, [OPPOSITES[type(operator)], *others], comparators)  # type: ignore[list-item]
            yield "comparison", node, f"({ast.unparse(mutated)})"
        case ast.BoolOp(operator, values):
            mutated = ast.BoolOp(OPPOSITES[type(operator)], values)  # type: ignore[arg-type]
            yield "and/or", node, f"({ast.unparse(mutated)})"
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            yield "number", node, str(number + 1)
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield "condition", test, f"(not ({ast.unparse(test)}))"
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", node, "return None"
        case ast.Expr(ast.Call() | ast.Await(ast.Call())):
            yield "call", node, "pass"


def visible_nodes(tree: ast.AST, first: int = 1) -> Iterator[tuple[ast.AST, int]]:
    """All nodes, each with the first line of its statement.

    Those inside f-strings are left out, because Python 3.11 has wrong positions for them.
    """
    first = tree.lineno if isinstance(tree, ast.stmt) else first
    yield tree, first
    if not isinstance(tree, ast.JoinedStr):
        for child in ast.iter_child_nodes(tree):
            yield from visible_nodes(child, first)


def mutations(path: Path, source: bytes) -> Iterator[Mutation]:
    """All mutations of a file."""
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    for node, first in visible_nodes(ast.parse(source)):
        for kind, place, after in replacements(node):
            assert isinstance(place, ast.expr | ast.stmt)
            assert place.end_lineno is not None
            assert place.end_col_offset is not None
            start = begins[place.lineno - 1] + place.col_offset
            end = begins[place.end_lineno - 1] + place.end_col_offset
            yield Mutation(path, place.lineno, first, place.end_lineno, kind, start, end, after)


def importers(path: Path, root: Path) -> list[str]:
    """The test files that import the module; they are likely to find a fault in it."""
    folder, name = path.parent.name, path.stem
    imported = re.compile(
        rf"^(from \S*\b{folder} import .*\b{name}\b|(from|import) \S*\b{folder}\.{name}\b)", re.MULTILINE
    )
    tests = (test for folder in unit_tests(root) for test in (root / folder).rglob("test_*.py"))
    return sorted(str(test.relative_to(root)) for test in tests if imported.search(test.read_text()))


def measure(root: Path) -> Path:
    """Run all unit tests, and return the database of coverage. Failed tests do no harm: they are checked later."""
    settings, database = root / ".coveragerc", root / ".coverage"
    settings.write_text(COVERAGE_SETTINGS)
    python = str(root / ".venv/bin/python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", COVERAGE], stdout=sys.stderr, check=True)
    subprocess.run([python, *PYTEST, *COVERED, *unit_tests(root)], cwd=root, stdout=sys.stderr, check=False)
    if not database.exists():
        raise UserError(f"pytest wrote no {database}: see its output above")
    return database


def unit_tests(root: Path) -> list[str]:
    """The folders of unit tests that this checkout has."""
    return [folder for folder in ("tests/unit", f"{LIBRARY}/tests") if (root / folder).is_dir()]


def covering(database: Path, file: Path, lines: Iterable[int]) -> list[str]:
    """The tests that executed one of the lines of a file, sorted.

    Source of the tables and of the bits: https://coverage.readthedocs.io/en/latest/dbschema.html
    """
    with closing(sqlite3.connect(database)) as connection:
        contexts = connection.execute(
            "SELECT context, numbits FROM line_bits JOIN context ON context.id = context_id"
            " JOIN file ON file.id = file_id WHERE path = ?",
            [str(file)],
        ).fetchall()
    wanted = [divmod(line, 8) for line in lines]
    executed = {
        context.rpartition("|")[0]
        for context, bits in contexts
        if any(byte < len(bits) and bits[byte] >> bit & 1 for byte, bit in wanted)
    }
    return sorted(executed - {""})  # empty: executed by an import, before a test


def mirror(path: Path, root: Path) -> list[str]:
    """The test folder of a file of the product: that of its folder, or of the nearest parent that has one."""
    if path.is_relative_to(LIBRARY) and (root / LIBRARY / "tests").is_dir():
        return [f"{LIBRARY}/tests"]
    path = path.relative_to("berth") if path.is_relative_to("berth") else path
    folders = (Path("tests/unit", parent) for parent in path.parents[:-1])
    return [str(folder) for folder in folders if (root / folder).is_dir()][:1]


def run_tests(root: Path, tests: Sequence[str], limit: float | None = None) -> tuple[str, str]:
    """Run tests up to the first failure: FOUND with the failed file, MISSED or TIMED_OUT.

    The file is empty if pytest itself can't start. UserError if there are no tests.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.NamedTemporaryFile("w") as names, tempfile.TemporaryFile("w+") as output:
        names.write("\n".join(tests))
        names.flush()
        process = subprocess.Popen(
            [str(root / ".venv/bin/python"), *PYTEST, "-x", f"@{names.name}"],
            cwd=root,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            return TIMED_OUT, ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # including processes that a test started
            process.wait()
        output.seek(0)
        printed = output.read()
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise UserError(f"pytest finds no test in {' '.join(tests)}: {printed[-1000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) ([^\s:]+\.py)", printed, re.MULTILINE)
    return FOUND if code else MISSED, failed[1] if failed else ""


def outcome(root: Path, mutation: Mutation, database: Path, limit: float) -> str:
    """Whether the tests find a mutation: FOUND, FAILS_ANYWAY, MISSED, TIMED_OUT or NO_TEST.

    Afterwards the file is as before.
    """
    file = root / mutation.path
    executing = covering(database, file, range(mutation.first, mutation.last + 1))
    source, modified = file.read_bytes(), file.stat().st_mtime_ns
    file.write_bytes(mutation.apply(source))
    result, failed, tests = NO_TEST, "", list[str]()
    try:
        for tests in filter(None, (executing, importers(mutation.path, root), mirror(mutation.path, root))):
            result, failed = run_tests(root, tests, limit)
            if result != MISSED:
                break
    finally:
        file.write_bytes(source)
        os.utime(file, ns=(modified, modified))  # bytecode is compared by the second, and by size
    if result == FOUND and run_tests(root, [failed] if failed else tests)[0] != MISSED:
        return FAILS_ANYWAY
    return result


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("mutations", __doc__)
    parser.add_argument("--count", type=program.positive, default=60, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="of the selection (default: %(default)s)")
    parser.add_argument(
        "--limit", type=program.above_zero, default=900.0, help="seconds per mutation (default: %(default)s)"
    )
    parser.add_argument("--checkout", type=Path, default=pins.ROOT, help="default: this one")
    options = parser.parse_args(words)
    checkout = options.checkout.resolve()
    rows: list[str] = []
    results: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="berth-mutations-") as scratch:
        root = Path(scratch, "berth")
        subprocess.run(["git", "clone", "--quiet", "--shared", str(checkout), str(root)], check=True)
        subprocess.run(["make", "setup-tests"], cwd=root, stdout=sys.stderr, check=True)
        database = measure(root)
        paths = [source.path for source in code_metrics.sources(root)]
        every = [mutation for path in paths for mutation in mutations(path, (root / path).read_bytes())]
        drawn = random.Random(options.seed).sample(every, options.count)
        for mutation in drawn:
            began = time.monotonic()
            result = outcome(root, mutation, database, options.limit)
            results[result] += 1
            rows.append(mutation.row((root / mutation.path).read_bytes(), result, time.monotonic() - began))
            print(rows[-1], file=sys.stderr, flush=True)
    figures = ", ".join(f"{count} {result}" for result, count in results.items())
    setting = f"{program.setting('mutations', words)}; {len(every)} possible mutations. {options.count}: {figures}."
    columns = ["place", "kind", "before", "after", "result", " s"]
    print(report.page("Mutations that the unit tests find", [setting], *report.table(columns, rows)))
    return 0


if __name__ == "__main__":
    program.end_with(main)
