"""Parses the user's source files; files that can't be parsed are skipped."""

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

_FILES = 300


def trees(code_dir: Path) -> Iterator[ast.Module]:
    """The syntax trees of the Python files below the source folder; at most of the first 300."""
    for path in sorted(code_dir.rglob("*.py"))[:_FILES]:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            yield ast.parse(path.read_text("utf-8"))


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """The calls, each with the last part of the called name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            yield name, node


def parser_arguments(code_dir: Path) -> dict[str, bool]:
    """The options of the scripts' parsers, without dashes → whether it takes a value."""
    found: dict[str, bool] = {}
    for tree in trees(code_dir):
        for name, call in calls(tree):
            if name != "add_argument":
                continue
            action = next((ast.unparse(each.value) for each in call.keywords if each.arg == "action"), "")
            takes_value = not any(word in action for word in ("store_true", "store_false", "BooleanOptional", "count"))
            for argument in call.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("-"):
                    found[str(argument.value).lstrip("-")] = takes_value
    return found
