"""`from .model import Net` in a program, which runs as a script and is therefore not in a package."""

import ast
from pathlib import Path

from berth.runtime.hints.program import ProgramContext, RaisedException


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The absolute import to write; the source folder is on Python's path."""
    if not raised.message.startswith("attempted relative import"):
        return ""
    own = [file for file in raised.files if context.is_own(file)]
    if not own:
        return ""
    path = context.code_dir / own[-1]
    tree = ast.parse(path.read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    if not imports:
        return ""
    changes = [f'"{_absolute(node, path, context.code_dir)}" instead of "{ast.unparse(node)}"' for node in imports[:3]]
    more = " and so on" if len(imports) > 3 else ""
    how = "is imported by its path" if context.serving else "runs as a script, which is in no package"
    return f"; {path.name} {how}: write {', '.join(changes)}{more}"


def _absolute(node: ast.ImportFrom, path: Path, code_dir: Path) -> str:
    folder = path.parents[node.level - 1]
    parts = folder.relative_to(code_dir).parts if folder.is_relative_to(code_dir) else ()
    module = ".".join([*parts, *([node.module] if node.module else [])])
    names = ", ".join(f"{each.name} as {each.asname}" if each.asname else each.name for each in node.names)
    return f"from {module} import {names}" if module else f"import {names}"
