"""Parses the user's source files; files that can't be parsed are skipped."""

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FILES = 300


@dataclass(frozen=True, slots=True)
class ParserArgument:
    """One `add_argument` of a script: its option without dashes, and whether it takes a value."""

    name: str
    takes_value: bool


def files(code_dir: Path) -> list[Path]:
    """The Python files below the source folder; at most the first 300."""
    return sorted(code_dir.rglob("*.py"))[:_FILES]


def stamps(code_dir: Path) -> tuple[tuple[Path, int], ...]:
    """The files with their modification times, as a cache key."""
    return tuple((path, path.lstat().st_mtime_ns) for path in files(code_dir))


def trees(code_dir: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Each Python file below the source folder with its syntax tree."""
    for path in files(code_dir):
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            yield path, ast.parse(path.read_text("utf-8"))


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls, each with the last part of the called name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            yield name, node


def parser_arguments(code_dir: Path) -> dict[str, ParserArgument]:
    """The options of the scripts' parsers, by name."""
    found: dict[str, ParserArgument] = {}
    for _, tree in trees(code_dir):
        for name, call in calls(tree):
            if name != "add_argument":
                continue
            action = next((ast.unparse(each.value) for each in call.keywords if each.arg == "action"), "")
            takes_value = not any(word in action for word in ("store_true", "store_false", "BooleanOptional", "count"))
            for argument in call.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("-"):
                    option = str(argument.value).lstrip("-")
                    found[option] = ParserArgument(option, takes_value)
    return found
