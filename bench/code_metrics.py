"""Figures of the source: files, lines, statements, functions, parameters, duplicate class names, and imports.

Usage: python -m bench.code_metrics [FOLDER]

They are counted with `ast` over the source that ships; bench and tests have a row each. Docstrings, comments and blank
lines are not statements. The parameters self and cls are not counted, nor those of a command (`@app.command(…)`), which
are its options. tests/unit/test_structure.py defines the limits and uses the same functions.
"""

import ast
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from bench import program
from berth.common.errors import UserError

NOT_SHIPPED = ("tests", "bench", "docs", "examples", "smdistributed/tests")
OPEN_LIBRARY = ("smdistributed", "src", "smdistributed")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file: its path below the root, its lines and its syntax tree."""

    path: Path
    lines: int
    tree: ast.Module

    @property
    def folder(self) -> str:
        """A folder of the package berth, or one at the top level."""
        first, *rest = self.path.parts
        return rest[0] if first == "berth" and len(rest) > 1 else first

    @property
    def module(self) -> tuple[str, ...]:
        """The parts of its name as others import it, without `berth`: ("train", "hosts", "ssh")."""
        parts = self.path.with_suffix("").parts
        if parts[:3] == OPEN_LIBRARY:
            parts = parts[2:]
        return tuple(part for part in parts[parts[0] == "berth" :] if part != "__init__")


def sources(root: Path, excluded: Collection[str] = NOT_SHIPPED) -> list[Source]:
    """The Python files that git lists, by default those that ship."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "*.py"], capture_output=True, text=True)
    if listed.returncode != 0:
        raise UserError(f"git can't list the files of {root} ({listed.stderr.strip()}): give the folder of a clone.")
    paths = [Path(line) for line in listed.stdout.splitlines()]
    shipped = [
        path for path in paths if not any(path.is_relative_to(each) for each in excluded) and (root / path).exists()
    ]
    texts = [(path, (root / path).read_text()) for path in shipped]
    return [Source(path, text.count("\n"), ast.parse(text)) for path, text in texts]


def statements(tree: ast.Module) -> int:
    """Statements without docstrings."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    texts = [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    return len(nodes) - len(texts)


def size(name: str, files: Sequence[Source]) -> str:
    """A row: files, lines, statements, and nodes of the syntax tree, whose number dense code does not reduce."""
    nodes = sum(1 for source in files for _ in ast.walk(source.tree))
    lines = sum(source.lines for source in files)
    return f"| {name} | {len(files)} | {lines} | {sum(statements(source.tree) for source in files)} | {nodes} |"


def functions(files: list[Source]) -> Iterator[tuple[Source, Function]]:
    """Every function and method with its file."""
    for source in files:
        for node in ast.walk(source.tree):
            if isinstance(node, Function):
                yield source, node


def length(function: Function) -> int:
    """Lines from `def` to the end, with the docstring but without decorators."""
    return (function.end_lineno or 0) - function.lineno + 1


def parameters(function: Function) -> int:
    """The number of parameters except self and cls."""
    arguments = function.args
    names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def is_command(function: Function) -> bool:
    """Whether a function's parameters are a command's options."""
    called = [each.func for each in function.decorator_list if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Attribute) and each.attr in ("command", "callback") for each in called)


def duplicate_classes(files: list[Source]) -> dict[str, list[str]]:
    """Class names that exist in several files → FILE:LINE of each."""
    places = defaultdict(list)
    for source in files:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{source.path}:{node.lineno}")
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


@dataclass(frozen=True)
class Import:
    """One imported module. where: FILE:LINE of the import; folder: the importing folder; module: the full name."""

    where: str
    folder: str
    module: str

    @property
    def target(self) -> str:
        """The imported folder of berth; empty for other packages."""
        top, _, rest = self.module.partition(".")
        return rest.partition(".")[0] if top == "berth" else ""


def imports(files: list[Source]) -> Iterator[Import]:
    """Every import, those inside functions too; `from berth import images` counts as berth.images."""
    for source in files:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module == "berth":
                modules = [f"berth.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = ["." * node.level + (node.module or "")]
            else:
                continue
            for module in modules:
                yield Import(f"{source.path}:{node.lineno}", source.folder, module)


def arrows(files: list[Source]) -> Counter[tuple[str, str]]:
    """(importing folder, imported folder) → number of imports; imports within a folder are skipped."""
    return Counter((each.folder, each.target) for each in imports(files) if each.target and each.target != each.folder)


def inner_imports(files: list[Source]) -> Iterator[tuple[Import, tuple[str, ...], tuple[str, ...]]]:
    """Every import of a berth module: (import, parts of the importing module's name, parts of the imported one's)."""
    modules = {source.module for source in files}
    where = {str(source.path): source.module for source in files}
    for source in files:
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("berth."):
                continue
            package = tuple((node.module or "").split(".")[1:])
            for alias in node.names:
                target = (*package, alias.name) if (*package, alias.name) in modules else package
                imported = Import(f"{source.path}:{node.lineno}", source.folder, ".".join(("berth", *target)))
                yield imported, where[str(source.path)], target


def import_cycles(files: list[Source]) -> list[str]:
    """A line per cycle of folders or modules in the same folder that import each other, directly or not."""
    arrows_of: dict[tuple[str, ...], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for _, source, target in inner_imports(files):
        for depth in range(min(len(source), len(target))):
            if source[depth] != target[depth]:
                arrows_of[source[:depth]][source[depth]].add(target[depth])
                break
    lines = []
    for folder, arrows_here in sorted(arrows_of.items()):
        try:
            TopologicalSorter(arrows_here).prepare()
        except CycleError as error:
            lines.append(f"{'/'.join(folder) or '.'}: {' → '.join(error.args[1])}")
    return lines


def aliases(files: list[Source]) -> list[str]:
    """Modules and names of berth that are imported under another name, with FILE:LINE."""
    return [
        f"{source.path}:{node.lineno}: {alias.name} as {alias.asname}"
        for source in files
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if alias.asname and (getattr(node, "module", None) or alias.name).partition(".")[0] == "berth"
    ]


def report(root: Path) -> Iterator[str]:
    """The figures as lines of Markdown."""
    files = sources(root)
    every = list(functions(files))
    yield "| folder | files | lines | statements | nodes |"
    yield "|---|---|---|---|---|"
    for folder in sorted({source.folder for source in files}):
        yield size(folder, [source for source in files if source.folder == folder])
    yield size("all that ships", files)
    others = sources(root, excluded=())
    for folder in ("bench", "tests"):
        yield size(folder, [source for source in others if source.folder == folder])
    yield ""
    sizes = sorted(files, key=lambda source: -source.lines)
    median, largest = statistics.median(source.lines for source in files), sizes[0]
    yield f"* lines of a file: median {median:.0f}, largest {largest.lines} ({largest.path})"
    by_length = sorted(every, key=lambda each: -length(each[1]))
    longest = ", ".join(f"{node.name} {length(node)}" for _, node in by_length[:5])
    yield f"* lines of a function: median {statistics.median(length(node) for _, node in every):.0f}, largest {longest}"
    yield f"* functions over 60 lines: {sum(length(node) > 60 for _, node in every)}"
    wide = [(node.name, parameters(node)) for _, node in every if parameters(node) > 6 and not is_command(node)]
    yield f"* functions with more than 6 parameters, except commands: {len(wide)} {dict(wide) if wide else ''}".rstrip()
    twice = duplicate_classes(files)
    yield f"* class names that exist twice: {len(twice)} {', '.join(twice)}".rstrip()
    renamed = aliases(files)
    yield f"* modules and names of berth imported under another name: {len(renamed)}"
    yield ""
    yield "| folder | imports |"
    yield "|---|---|"
    counted = arrows(files)
    for folder in sorted({source for source, _ in counted}):
        yield f"| {folder} | {', '.join(f'{t} ({n})' for (s, t), n in sorted(counted.items()) if s == folder)} |"


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("code_metrics", __doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="a checkout (default: this folder)")
    print("\n".join(report(parser.parse_args(words).folder)))
    return 0


if __name__ == "__main__":
    program.end_with(main)
