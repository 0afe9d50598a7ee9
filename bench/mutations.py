"""Mutations: how many of the faults that this program puts into the product do the unit tests find?

Usage: python -m bench.mutations [--count 60] [--seed 1] [--checkout FOLDER] > bench/results/DATE-mutations.md

A mutation changes one expression or statement of the product: a comparison, `and` or `or`, a number, a condition, a
`return` or a call. The selection depends on the seed and the source. Each mutation is made in a clone of the
checked-out commit, which has its own environment (`make setup-tests`). pytest then runs the test files that import the
module, after them the folder of tests/unit that mirrors the module's folder, and that folder's parents, up to the
first failure. A mutation is found if a test fails whose file passes without the mutation, and counts as not found after
--limit seconds. Progress goes to stderr.
--checkout: another clone of this repository, to compare its commit.
"""

import ast
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
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
FAILS_ANYWAY = "a test fails without it, too"
PYTEST = ("-m", "pytest", "-q", "-x", "-ra", "-m", "not nightly", "-p", "no:cacheprovider")


@dataclass(frozen=True, slots=True)
class Mutation:
    """`after` replaces the bytes of a file from `start` to `end`."""

    path: Path
    line: int
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


def visible_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except those inside f-strings, because Python 3.11 has wrong positions for them."""
    yield tree
    if not isinstance(tree, ast.JoinedStr):
        for child in ast.iter_child_nodes(tree):
            yield from visible_nodes(child)


def mutations(path: Path, source: bytes) -> Iterator[Mutation]:
    """All mutations of a file."""
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    for node in visible_nodes(ast.parse(source)):
        for kind, place, after in replacements(node):
            assert isinstance(place, ast.expr | ast.stmt)
            assert place.end_lineno is not None
            assert place.end_col_offset is not None
            start = begins[place.lineno - 1] + place.col_offset
            end = begins[place.end_lineno - 1] + place.end_col_offset
            yield Mutation(path, place.lineno, kind, start, end, after)


def mirrors(path: Path, root: Path) -> list[str]:
    """The test folders of a file of the product, the nearest first. A file at the top has the test files at the top."""
    if path.is_relative_to(LIBRARY) and (root / LIBRARY / "tests").is_dir():
        return [f"{LIBRARY}/tests"]
    path = path.relative_to("berth") if path.is_relative_to("berth") else path
    folders = [Path("tests/unit") / parent for parent in path.parents[:-1]]
    existing = [str(folder) for folder in folders if (root / folder).is_dir()]
    return existing or sorted(str(test.relative_to(root)) for test in (root / "tests/unit").glob("test_*.py"))


def importers(path: Path, root: Path) -> list[str]:
    """The test files that import the module; they are likely to find a fault in it."""
    folder, name = path.parent.name, path.stem
    imported = re.compile(
        rf"^(from \S*\b{folder} import .*\b{name}\b|(from|import) \S*\b{folder}\.{name}\b)", re.MULTILINE
    )
    tests = (test for folder in ("tests/unit", f"{LIBRARY}/tests") for test in (root / folder).rglob("test_*.py"))
    return sorted(str(test.relative_to(root)) for test in tests if imported.search(test.read_text()))


def run_tests(root: Path, tests: Sequence[str], limit: float | None = None) -> tuple[str, str]:
    """Run tests up to the first failure: FOUND with the failed file, MISSED or TIMED_OUT.

    The file is empty if pytest itself can't start. UserError if there are no tests.
    """
    command = [str(root / ".venv/bin/python"), *PYTEST, *tests]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=output, start_new_session=True
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


def outcome(root: Path, mutation: Mutation, limit: float) -> str:
    """Whether the tests find a mutation: FOUND, FAILS_ANYWAY, MISSED or TIMED_OUT. Afterwards the file is as before."""
    file = root / mutation.path
    source, modified = file.read_bytes(), file.stat().st_mtime_ns
    file.write_bytes(mutation.apply(source))
    try:
        for tests in filter(None, (importers(mutation.path, root), mirrors(mutation.path, root))):
            result, failed = run_tests(root, tests, limit)
            if result != MISSED:
                break
    finally:
        file.write_bytes(source)
        os.utime(file, ns=(modified, modified))  # bytecode is compared by the second, and by size
    return FAILS_ANYWAY if failed and run_tests(root, [failed])[0] != MISSED else result


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
        paths = [source.path for source in code_metrics.sources(root)]
        every = [mutation for path in paths for mutation in mutations(path, (root / path).read_bytes())]
        drawn = random.Random(options.seed).sample(every, options.count)
        for mutation in drawn:
            began = time.monotonic()
            result = outcome(root, mutation, options.limit)
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
