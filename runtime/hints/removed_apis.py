"""What to do about APIs of transformers that the image's version does not have: all that the user's sources use.

That an API is missing is what the exception says: nothing is looked for that has not failed.
"""

import ast
import functools
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from berth.runtime.hints.api_names import (
    ACCELERATOR,
    ARGUMENTS,
    NAMES,
    TOKENIZER,
    TRAINER,
    ApiName,
    known_name,
    replacement,
)
from berth.runtime.hints.images import PROFILES, ThisImage, image_with, this_image
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.sources import calls, stamps, trees

PACKAGES = ("transformers", "accelerate", "datasets", "evaluate")
CANDIDATES = ("4.57.6", "4.49.0")
"""Releases to make an image with, that between them have what scripts for transformers 4.41 and later use. An image of
each was made by `profile add`.
"""
_INSIDE = re.compile(rf"/(?:site|dist)-packages/(?:{'|'.join(PACKAGES)})/")
_KINDS = ("TypeError", "ImportError", "ModuleNotFoundError", "AttributeError", "ValueError")
_MOST_CHARACTERS = 560
"""Of what to write instead: the failure's sentence holds 900 with the exception and the image."""
# In the words of Python, of transformers' lazy modules and of argparse.
_KEYWORD = re.compile(r"([A-Za-z_]\w*)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'")
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_MODULE = re.compile(r"No module named '([\w.]+)'")
_MODULE_ATTRIBUTE = re.compile(r"module '?([\w.]+?)'? has no attribute '?(\w+)'?")
_ATTRIBUTE = re.compile(r"(?:type object )?'(\w+)'(?: object)? has no attribute '(\w+)'")
_UNUSED = re.compile(r"Some specified arguments are not used by the HfArgumentParser: \[(.*)")
_UNRECOGNIZED = re.compile(r"^\S+: error: unrecognized arguments: (.*)$")
_OPTION = re.compile(r"(?:^|[\s'\"])--([A-Za-z][\w-]*)")
_MESSAGES = (_KEYWORD, _NAME, _MODULE, _MODULE_ATTRIBUTE, _ATTRIBUTE, _UNUSED, _UNRECOGNIZED)


@dataclass(frozen=True, slots=True)
class Missing:
    """A name that an exception says is missing: its package, what has it, and itself as a script has it."""

    package: str
    owner: str
    name: str


@dataclass(slots=True)
class OwnCode:
    """What the user's sources define and use: bases of classes, functions, modules, known names of transformers."""

    bases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    initialised: set[str] = field(default_factory=set)
    modules: frozenset[str] = frozenset()
    used: list[ApiName] = field(default_factory=list)
    parses_arguments: bool = False

    def owner(self, name: str, seen: frozenset[str] = frozenset()) -> str:
        """The class of the packages that a class is or inherits from; "" for any other."""
        if name in self.bases and name not in seen:
            return next(filter(None, (self.owner(base, seen | {name}) for base in self.bases[name])), "")
        if name.endswith(ARGUMENTS):
            return ARGUMENTS
        if re.search(r"Tokenizer(Fast|Base)?$", name):
            return TOKENIZER
        return next((each for each in (TRAINER, ACCELERATOR) if name in (each, f"Seq2Seq{each}")), "")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """For an exception of what the user's own code calls; empty where it is none of a removed API."""
    outside = [file for file in raised.files if not _INSIDE.search(file) and not file.startswith("<")]
    own = bool(outside) and context.is_own(outside[-1])
    return message_hint(raised.message, context.code_dir, this_image()) if own and raised.name in _KINDS else ""


def line_hint(line: str, context: ProgramContext) -> str:
    """The same for the last line of a program that argparse ended."""
    return message_hint(line, context.code_dir, this_image()) if _UNRECOGNIZED.match(line) else ""


def message_hint(message: str, code_dir: Path, here: ThisImage) -> str:
    """What to write instead, and the image that has all that the script uses; "" if the message is of nothing known."""
    if not any(each.match(message) for each in _MESSAGES):
        return ""
    own = read_own_code(code_dir, stamps(code_dir))
    missing = list(_missing(message, own))
    if not missing or not here.versions.get(missing[0].package):
        return ""
    version = Version(here.versions[missing[0].package])
    if missing[0].package != "transformers":
        return _of_other_package(missing[0], version)
    rows = [row for each in missing if (row := known_name(each.owner, each.name))]
    if rows and all(row.is_in(version) for row in rows):
        return ""  # then something else is wrong
    if not rows and missing[0].owner != NAMES:
        return ""
    used = [*rows, *(row for row in own.used if row not in rows)]
    gone = [(row.owner, row.name) for row in used if not row.is_in(version)]
    gone = gone or [(each.owner, each.name) for each in missing]
    ways = ", or ".join(filter(None, [_instead(gone, version), _image(used, version, here)]))
    lacks = f"has no `{gone[0][1]}`" if len(gone) == 1 else f"lacks {len(gone)} names of this script"
    return f"; transformers {_minor(version)} {lacks}: {ways}".removesuffix(": ")


def _missing(message: str, own: OwnCode) -> Iterator[Missing]:
    if match := _KEYWORD.match(message):
        owner = "" if match[1] in own.initialised else own.owner(match[1])
        if owner:
            yield Missing("accelerate" if owner == ACCELERATOR else "transformers", owner, match[2])
    elif match := _NAME.match(message):
        yield from _of_module(match[2], match[1], own)
    elif match := _MODULE_ATTRIBUTE.match(message):
        yield from _of_module(match[1], match[2], own)
    elif match := _MODULE.match(message):
        package, _, rest = match[1].partition(".")
        if rest:
            yield from _of_module(package, rest, own)
    elif match := _ATTRIBUTE.match(message):
        if owner := own.owner(match[1]):
            yield Missing("transformers", owner, match[2])
    elif match := _UNUSED.match(message) or (_UNRECOGNIZED.match(message) if own.parses_arguments else None):
        for option in dict.fromkeys(_OPTION.findall(match[1])):
            name = option.replace("-", "_")
            if known_name(ARGUMENTS, name):
                yield Missing("transformers", ARGUMENTS, name)


def _of_module(module: str, name: str, own: OwnCode) -> Iterator[Missing]:
    package = module.partition(".")[0]
    if package in PACKAGES and package not in own.modules:
        yield Missing(package, NAMES, name)


def _of_other_package(missing: Missing, version: Version) -> str:
    way = replacement(missing.owner, missing.name, version)
    return f"; {missing.package} {_minor(version)} has no `{missing.name}`: {way.replace(' it ', ' ')}" if way else ""


def _instead(gone: Sequence[tuple[str, str]], version: Version) -> str:
    """`rename a to b, c to d; leave out e; for f use g`, as far as it fits a failure's sentence."""
    renamed, dropped, others, unknown = [], [], [], []
    for owner, name in gone:
        way = replacement(owner, name, version)
        if way.startswith("rename it to "):
            renamed.append(f"{name} to {way.removeprefix('rename it to ')}")
        elif way == "leave it out":
            dropped.append(name)
        elif way:
            others.append(f"for {name} {way}" if len(gone) > 1 else way)
        else:
            unknown.append(name)
    parts = [
        f"rename {', '.join(renamed)}" if renamed else "",
        f"leave out {', '.join(dropped)}" if dropped else "",
        *others,
        f"without a replacement: {', '.join(unknown)}" if unknown and len(gone) > 1 else "",
    ]
    text = "; ".join(filter(None, parts))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: text.rindex(' ', 0, _MOST_CHARACTERS)]} …"


def _image(used: Iterable[ApiName], version: Version, here: ThisImage) -> str:
    """The profile, or the command that makes an image, whose transformers has all that the script uses."""
    kits = [row.transformers for row in PROFILES.values() if row.hardware == here.hardware]
    newest, oldest = max(kits, key=Version), min(kits, key=Version)
    rows = list(used)
    for candidate in (newest, *CANDIDATES, oldest):
        release = Version(candidate)
        same = release.release[:2] == version.release[:2]
        # A script that calls what the newest lacks, in a way that no table knows, was written for an older one.
        unknown_in_newest = candidate == newest and not rows
        if not same and not unknown_in_newest and all(row.is_in(release) for row in rows):
            return f"{'' if rows else 'for scripts of transformers 4 '}{image_with(candidate, here)}"
    return ""


def _minor(version: Version) -> str:
    return ".".join(map(str, version.release[:2]))


@functools.lru_cache(maxsize=1)
def read_own_code(code_dir: Path, _stamps: Hashable) -> OwnCode:
    """Of the files of a source folder, as far as they can be parsed. Kept while no file changes, because a handler may
    fail at each request, and reading takes up to a second.
    """
    own = OwnCode(
        modules=frozenset({path.stem for path in code_dir.glob("*.py")} | {path.name for path in code_dir.glob("*/")})
    )
    read = [tree for _, tree in trees(code_dir)]
    for tree in read:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own.bases[node.name] = tuple(ast.unparse(each).rpartition(".")[2] for each in node.bases)
                if any(isinstance(each, ast.FunctionDef) and each.name == "__init__" for each in node.body):
                    own.initialised.add(node.name)
    for tree in read:
        for owner, name in _names_used(tree, own):
            row = known_name(owner, name)
            if row is not None and row not in own.used:
                own.used.append(row)
        own.parses_arguments = own.parses_arguments or any(name == "HfArgumentParser" for name, _ in calls(tree))
    return own


def _names_used(tree: ast.Module, own: OwnCode) -> Iterator[tuple[str, str]]:
    """What a file imports from transformers, or takes as its attribute, and keywords of its classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "transformers":
            yield from ((NAMES, each.name) for each in node.names)
        elif isinstance(node, ast.Attribute):
            is_module = isinstance(node.value, ast.Name) and node.value.id == "transformers"
            if is_module or known_name(TOKENIZER, node.attr):
                yield (NAMES if is_module else TOKENIZER, node.attr)
    for name, call in calls(tree):
        owner = own.owner(name)
        if owner in (ARGUMENTS, TRAINER):
            yield from ((owner, each.arg) for each in call.keywords if each.arg)
