"""What a script can use of an installed package, read from its source: nothing is imported, so that packages of any
time can be read on any Python, without what they need themselves.

The public names of each module, its submodules among them, the keywords of classes, functions and methods, and the
attributes of classes.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_LAZY = "_LazyModule"
_STRUCTURE = "_import_structure"
"""transformers' dict of the names that its modules have, which it imports when they are asked for."""
_NEVER_THERE = ("TF", "Flax", "FLAX_", "is_flax", "is_tf_", "is_tensorflow")
"""How names begin that need TensorFlow or JAX, which no image of ours has."""
_ALL = re.compile(r"^__all__ = (\[[^\]]*\])", re.MULTILINE)
_DEPTH = 8
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Api:
    """`names` by module, `keywords` by qualified name as an exception has it (`Trainer.__init__`), `attributes` by
    class.
    """

    names: dict[str, set[str]] = field(default_factory=dict)
    keywords: dict[str, set[str]] = field(default_factory=dict)
    attributes: dict[str, set[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """One file of a package; `name` has the dots of an import."""

    name: str
    path: Path

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """Those of the module itself, also inside of `if` and `try`."""
        return list(_flat(self._tree.body))

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.path.read_text("utf-8"))

    @cached_property
    def seen(self) -> list[ast.stmt]:
        """Those whose names a script gets: of a module whose names are imported when they are asked for, the imports
        that stand there for type checkers.
        """
        if f"sys.modules[__name__] = {_LAZY}(" not in self.path.read_text("utf-8"):
            return self.statements
        checked = [
            node for node in self._tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ]
        imports = [node for node in _flat(checked) if isinstance(node, ast.ImportFrom)]
        return [*(node for node in self.statements if not isinstance(node, ast.ImportFrom)), *imports]

    def relative(self, node: ast.ImportFrom) -> str:
        """The module that an import names, dots resolved."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        above = parts[: len(parts) - node.level + (self.path.name == "__init__.py")]
        return ".".join([*above, *([node.module] if node.module else [])])


class Package:
    """The package in the folder `root/name`."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.modules = {each.name: each for each in _modules(root, name)}

    def api(self) -> Api:
        """All of it. What is in the modules of transformers' models, which are hundreds, is not told apart: what they
        export is in the names of transformers itself.
        """
        found = Api()
        for name, module in self.modules.items():
            if not _hidden(name):
                inside = self.submodules(module) if self._of_models(name) else self.names(module)
                found.names[name] = {each for each in inside if _is_public(each)}
        for name, function in self._callables():
            found.keywords.setdefault(name, _keywords(function))
        for name in filter(_is_public, self.classes):
            if fields := self._dataclass_fields(name):
                found.keywords.setdefault(f"{name}.__init__", fields)
            found.attributes[name] = self._attributes(name)
        return found

    def _of_models(self, name: str) -> bool:
        return f"{name}.".startswith(f"{self.name}.models.")

    def submodules(self, module: Module) -> set[str]:
        """Those right below it."""
        start = f"{module.name}."
        below = [name for name in self.modules if name.startswith(start) and not _hidden(name)]
        return {name[len(start) :].partition(".")[0] for name in below}

    def model_names(self) -> dict[str, set[str]]:
        """What each of transformers' models exports, by its folder's name."""
        start = f"{self.name}.models."
        folders = {
            name: module
            for name, module in self.modules.items()
            if name.startswith(start) and name.count(".") == start.count(".")
        }
        return {
            name.removeprefix(start): set(filter(_is_public, self.names(module) - self.submodules(module)))
            for name, module in folders.items()
            if not _hidden(name)
        }

    def names(self, module: Module, depth: int = _DEPTH) -> set[str]:
        """What can be imported from a module: what it defines, its lazy names and its submodules; from a package also
        what it takes from its modules.
        """
        found: set[str] = set()
        for node in module.seen:
            found |= {*_defined(node), *_lazy(node)}
            if isinstance(node, ast.ImportFrom) and self._ours(module.relative(node)):
                if module.path.name == "__init__.py":
                    found |= {alias.asname or alias.name for alias in node.names if alias.name != "*"}
                star = self.modules.get(module.relative(node)) if node.names[0].name == "*" else None
                if star and depth:
                    found |= self._exported(star, depth)
        return found | self.submodules(module)

    def _exported(self, module: Module, depth: int) -> set[str]:
        """What `from module import *` gives: its `__all__`, else all."""
        # Without parsing the whole file, of which transformers' models are thousands.
        if listed := _ALL.search(module.path.read_text("utf-8")):
            return set(_strings(ast.parse(listed[1], mode="eval").body))
        return self.names(module, depth - 1) - self.submodules(module)

    def _ours(self, name: str) -> bool:
        return name == self.name or name.startswith(f"{self.name}.")

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """By name, those outside of transformers' models."""
        found: dict[str, ast.ClassDef] = {}
        for name, module in self.modules.items():
            if not _hidden(name) and not self._of_models(name) and ".dummy_" not in name:
                for node in module.statements:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith(_NEVER_THERE):
                        found.setdefault(node.name, node)
        return found

    def _callables(self) -> Iterator[tuple[str, Function]]:
        """Public functions and methods that take no keywords of any name, those that a class inherits with it."""
        for name, module in self.modules.items():
            if not _hidden(name) and not self._of_models(name):
                for node in module.statements:
                    if isinstance(node, Function) and _is_public(node.name) and not node.args.kwarg:
                        yield node.name, node
        for name in filter(_is_public, self.classes):
            for node in self._methods(name).values():
                if (node.name == "__init__" or _is_public(node.name)) and not node.args.kwarg:
                    yield f"{name}.{node.name}", node

    def _line(self, name: str) -> list[ast.ClassDef]:
        """A class and those of its package that it inherits from, itself last."""
        node = self.classes.get(name)
        if node is None:
            return []
        bases = [each.id for each in node.bases if isinstance(each, ast.Name) and each.id != name]
        return [*(above for base in reversed(bases) for above in self._line(base)), node]

    def _methods(self, name: str) -> dict[str, Function]:
        return {node.name: node for each in self._line(name) for node in _flat(each.body) if isinstance(node, Function)}

    def _dataclass_fields(self, name: str) -> set[str]:
        """The keywords of the constructor that a dataclass gets."""
        node = self.classes[name]
        if "__init__" in self._methods(name) or not any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            return set()
        return {
            field.target.id
            for each in self._line(name)
            for field in each.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if not _no_keyword(field)
        }

    def _attributes(self, name: str) -> set[str]:
        """Methods, fields, and what methods set on `self`; public ones."""
        found: set[str] = set()
        for each in self._line(name):
            for node in ast.walk(each):
                stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if stored and isinstance(node.value, ast.Name) and node.value.id == "self":
                    found.add(node.attr)
            for statement in _flat(each.body):
                found |= set(_defined(statement))
        return set(filter(_is_public, found))


def _modules(root: Path, name: str) -> Iterator[Module]:
    for path in sorted((root / name).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)


def _is_public(name: str) -> bool:
    return not name.startswith(("_", *_NEVER_THERE))


def _hidden(name: str) -> bool:
    """Modules that are nobody's to import, and those of TensorFlow and JAX."""
    parts = name.split(".")
    return any(
        part.startswith(("_", "dummy_", "tf_", "flax_", "modeling_tf", "modeling_flax", "convert_", "keras"))
        or part.endswith(("_tf", "_flax", "_tf_utils", "_flax_utils"))
        or "_tf_" in part
        or "_flax_" in part
        for part in parts[1:]
    )


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _flat([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _flat([*node.body, *node.orelse, *(each for h in node.handlers for each in h.body)])
        elif isinstance(node, ast.With):
            yield from _flat(node.body)
        else:
            yield node


def _targets(node: ast.Assign) -> list[str]:
    names = [each for target in node.targets for each in ast.walk(target)]
    return [each.id for each in names if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    if isinstance(node, ast.Assign):
        return _targets(node)
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _lazy(node: ast.stmt) -> Iterator[str]:
    """Names that a statement puts into transformers' structure: a dict, an item of it, or what is appended to one."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _STRUCTURE in _targets(node):
        for value in node.value.values:
            yield from _strings(value)
    elif isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and _is_of_structure(node):
        value = node.value
        if isinstance(value, ast.Call):
            yield from (text for argument in value.args for text in _strings(argument))
        else:
            yield from _strings(value)


def _is_of_structure(node: ast.Assign | ast.AugAssign | ast.Expr) -> bool:
    """`_import_structure["x"] = […]`, `… += […]`, `_import_structure["x"].append(…)`."""
    place: ast.expr = node.targets[0] if isinstance(node, ast.Assign) else node.value
    if isinstance(node, ast.AugAssign):
        place = node.target
    elif isinstance(place, ast.Call) and isinstance(place.func, ast.Attribute):
        place = place.func.value
    return isinstance(place, ast.Subscript) and isinstance(place.value, ast.Name) and place.value.id == _STRUCTURE


def _strings(node: ast.expr) -> list[str]:
    found = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]
    return [each.value for each in found if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def _keywords(node: Function) -> set[str]:
    found = {each.arg for each in [*node.args.args, *node.args.kwonlyargs]}
    return found - {"self", "cls"}


def _no_keyword(field: ast.AnnAssign) -> bool:
    """Whether the constructor does not take it: a class variable, or `field(init=False)`."""
    text = ast.unparse(field.value) if field.value else ""
    return "ClassVar" in ast.unparse(field.annotation) or "init=False" in text.replace(" ", "")
