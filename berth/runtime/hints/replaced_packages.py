"""Packages of the image that a requirements.txt replaced: a note for the log before the program starts, which is
repeated after a failure that they may have caused.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from berth.runtime.hints.images import ThisImage, add_command, image_with
from berth.runtime.hints.program import PackageNote, ProgramContext, RaisedException

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)")
# pip's lines (26.3): the version that it replaces, the versions that it installed, and each violated requirement.
_FOUND = re.compile(r"\s*Found existing installation: (\S+) (\S+)")
_INSTALLED = "Successfully installed "
_CONFLICT = re.compile(
    r"(\S+) (\S+) requires ([\w.-]+)(?:\[[^\]]*\])?([^\s;]*).*, but \S+ have \S+ (\S+) which is incompatible"
)
_ADDED_BY_OPTION = ("transformers", "torch", "accelerate", "datasets")
_SHOWN = 4
_MODULES = {"pillow": "PIL", "scikit-learn": "sklearn", "pyyaml": "yaml", "protobuf": "google/protobuf"}


class Replaced(NamedTuple):
    """A package, by its normalised name, and its versions before and after."""

    name: str
    before: str
    after: str


class Conflict(NamedTuple):
    """A package whose version does not meet `needs`, such as `<3,>=1.31`, of the package `dependant`."""

    name: str
    version: str
    dependant: str
    dependant_version: str
    needs: str


def normalised(name: str) -> str:
    """A package's name as package indexes normalise it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def package_note(output: Sequence[str], name: str, text: str, here: ThisImage) -> PackageNote | None:
    """The note on what a successful `pip install` replaced; None if it replaced no package and violated no requirement.

    output: pip's lines. name, text: of the requirements file.
    """
    replaced = _replaced(output)
    conflicts = [
        Conflict(normalised(package), version, normalised(dependant), dependant_version, needs)
        for dependant, dependant_version, package, needs, version in _CONFLICT.findall("\n".join(output))
    ]
    if not replaced and not conflicts:
        return None
    lines = requirement_lines(text)
    parts = [
        _replacements(replaced, lines, name),
        *_conflict_texts(conflicts, lines, name),
        _remedy(replaced, conflicts, lines, here),
    ]
    concerned = {each.name for each in replaced} | {each for one in conflicts for each in (one.name, one.dependant)}
    modules = tuple(sorted(_MODULES.get(each, each.replace("-", "_")) for each in concerned))
    return PackageNote("; ".join(part for part in parts if part), modules)


def _replaced(output: Iterable[str]) -> list[Replaced]:
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for line in output:
        if match := _FOUND.match(line):
            before[normalised(match[1])] = match[2]
        elif line.startswith(_INSTALLED):
            pairs = (each.rpartition("-") for each in line.removeprefix(_INSTALLED).split())
            after |= {normalised(package): version for package, _, version in pairs}
    return [
        Replaced(package, before[package], version)
        for package, version in sorted(after.items())
        if before.get(package, version) != version
    ]


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The note, if the exception comes from a replaced package or one that depends on it."""
    note = context.package_note
    if note is None or not note.modules:
        return ""
    names = "|".join(map(re.escape, note.modules))
    inside = bool(raised.files) and re.search(rf"/(?:site|dist)-packages/(?:{names})[/.]", raised.files[-1])
    may_name = raised.name in ("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError", "RuntimeError")
    mentioned = may_name and re.search(rf"(?<![\w/])(?:{names})(?!\w)", raised.message)
    return f"; {note.text}" if inside or mentioned else ""


def requirement_lines(text: str) -> dict[str, int]:
    """Normalised name → the number of its line."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := _REQUIREMENT.match(line):
            found.setdefault(normalised(match[1]), number)
    return found


def _replacements(replaced: Sequence[Replaced], lines: Mapping[str, int], name: str) -> str:
    """`requirements.txt replaces transformers 5.23.0 with 4.27.1`: the file's packages, or else all replaced ones."""
    requested = [each for each in replaced if each.name in lines]
    shown = sorted(requested, key=lambda each: lines[each.name]) or list(replaced)
    words = [f"{each.name} {each.before} with {each.after}" for each in shown[:_SHOWN]]
    with_them = ""
    if len(replaced) > len(words):
        others = [each.name for each in replaced if each not in shown[:_SHOWN]]
        more = " and others" if len(others) > _SHOWN else ""
        with_them = f" (and with {'it' if len(words) == 1 else 'them'} {', '.join(others[:_SHOWN])}{more})"
    if not words:
        return ""
    return f"{name} replaces {', '.join(words[:-1])}{' and ' if words[:-1] else ''}{words[-1]}{with_them}"


def _conflict_texts(conflicts: Sequence[Conflict], lines: Mapping[str, int], name: str) -> list[str]:
    """`huggingface-hub 0.36.0 (requirements.txt, line 1) conflicts with transformers 5.23.0 (needs <3.0,>=1.31.0)`."""
    texts = []
    for package in list(dict.fromkeys(each.name for each in conflicts))[:_SHOWN]:
        # transformers first, because scripts import it first.
        same = sorted(
            (each for each in conflicts if each.name == package),
            key=lambda each: (each.dependant != "transformers", each.dependant),
        )
        where = f" ({name}, line {lines[package]})" if package in lines else ""
        others = " and ".join(
            f"{each.dependant} {each.dependant_version} (needs {each.needs})" for each in same[:_SHOWN]
        )
        texts.append(f"{package} {same[0].version}{where} conflicts with {others}")
    return texts


def _remedy(
    replaced: Sequence[Replaced], conflicts: Sequence[Conflict], lines: Mapping[str, int], here: ThisImage
) -> str:
    """An image with the versions if the file requests transformers or torch; else how to resolve the conflicts."""
    requested = {each.name: each.after for each in replaced if each.name in lines}
    versions = {each: requested[each] for each in _ADDED_BY_OPTION if each in requested}
    if version := versions.pop("transformers", ""):
        return image_with(version, here, versions)
    if "torch" in versions:
        return f"{add_command(here, versions)} makes an image with it"
    return "remove the pin" if any(each.name in lines for each in conflicts) else ""
