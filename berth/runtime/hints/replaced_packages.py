"""Packages of the image that a requirements.txt replaced: a note for the log before the program starts, which is
repeated after a failure that they may have caused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from berth.runtime.hints.images import ThisImage, add_command, image_with
from berth.runtime.hints.program import PackageNote, ProgramContext, RaisedException
from berth.runtime.installed_packages import (
    Conflict,
    Packages,
    Replaced,
    dependants,
    new_conflicts,
    normalised,
    replaced_packages,
)

_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*([^;#]*)")
_ADDED_BY_OPTION = ("transformers", "torch", "accelerate", "datasets")
_SHOWN = 4
_MODULES = {"pillow": "PIL", "scikit-learn": "sklearn", "pyyaml": "yaml", "protobuf": "google/protobuf"}


def package_note(before: Packages, after: Packages, name: str, text: str, here: ThisImage) -> PackageNote | None:
    """The note on the packages before and after; None if no package was replaced and no requirement was violated.

    name, text: of the requirements file.
    """
    replaced, conflicts = replaced_packages(before, after), new_conflicts(before, after)
    if not replaced and not conflicts:
        return None
    lines = requirement_lines(text)
    keys = {each.name for each in replaced}
    parts = [
        _replacements(replaced, lines, name),
        *_conflicts(conflicts, lines, name),
        _remedy(replaced, conflicts, lines, here),
    ]
    concerned = keys | {each for one in conflicts for each in (one.name, one.dependant)}
    concerned |= dependants(after, keys)
    modules = tuple(sorted(_MODULES.get(each, each.replace("-", "_")) for each in concerned))
    return PackageNote("; ".join(part for part in parts if part), modules)


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The note, if the exception comes from a replaced package or one that depends on it."""
    note = context.package_note
    if note is None or not note.modules:
        return ""
    names = "|".join(map(re.escape, note.modules))
    inside = bool(raised.files) and re.search(rf"/(?:site|dist)-packages/(?:{names})[/.]", raised.files[-1])
    about = raised.name in ("ImportError", "ModuleNotFoundError", "AttributeError", "TypeError", "RuntimeError")
    named = about and re.search(rf"(?<![\w/])(?:{names})(?!\w)", raised.message)
    return f"; {note.text}" if inside or named else ""


def requirement_lines(text: str) -> dict[str, tuple[int, str]]:
    """Normalised name → its line's number and bounds, such as `==4.27.1`."""
    found: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := _REQUIREMENT.match(line):
            found.setdefault(normalised(match[1]), (number, match[2].strip()))
    return found


def _replacements(replaced: Sequence[Replaced], lines: Mapping[str, tuple[int, str]], name: str) -> str:
    """`requirements.txt replaces transformers 5.23.0 with 4.27.1`: the file's packages, or else all replaced ones."""
    requested = [each for each in replaced if each.name in lines]
    shown = sorted(requested, key=lambda each: lines[each.name][0]) or list(replaced)
    words = [f"{each.name} {each.before} with {each.after}" for each in shown[:_SHOWN]]
    with_them = ""
    if len(replaced) > len(words):
        others = [each.name for each in replaced if each not in shown[:_SHOWN]]
        more = " and others" if len(others) > _SHOWN else ""
        with_them = f" (and with {'it' if len(words) == 1 else 'them'} {', '.join(others[:_SHOWN])}{more})"
    if not words:
        return ""
    return f"{name} replaces {', '.join(words[:-1])}{' and ' if words[:-1] else ''}{words[-1]}{with_them}"


def _conflicts(conflicts: Sequence[Conflict], lines: Mapping[str, tuple[int, str]], name: str) -> Iterator[str]:
    """`huggingface-hub 0.36.0 (requirements.txt, line 1) conflicts with transformers 5.23.0 (needs >=1.31.0,<3.0)`."""
    for package in list(dict.fromkeys(each.name for each in conflicts))[:_SHOWN]:
        # transformers first, because scripts import it first.
        same = sorted((each for each in conflicts if each.name == package), key=_rank)[:_SHOWN]
        number = lines.get(package, (0, ""))[0]
        where = f" ({name}, line {number})" if number else ""
        others = " and ".join(f"{each.dependant} {each.dependant_version} (needs {each.needs})" for each in same)
        yield f"{package} {same[0].version}{where} conflicts with {others}"


def _rank(conflict: Conflict) -> tuple[bool, str]:
    return conflict.dependant not in _ADDED_BY_OPTION[:1], conflict.dependant


def _remedy(
    replaced: Sequence[Replaced], conflicts: Sequence[Conflict], lines: Mapping[str, tuple[int, str]], here: ThisImage
) -> str:
    """An image with the versions if the file requests transformers or torch; else how to resolve the conflicts."""
    requested = {each.name: each.after for each in replaced if each.name in lines}
    versions = {each: requested[each] for each in _ADDED_BY_OPTION if each in requested}
    if version := versions.pop("transformers", ""):
        return image_with(version, here, versions)
    if "torch" in versions:
        return f"{add_command(here, versions)} makes an image with it"
    return ", ".join(dict.fromkeys(_conflict_remedies(conflicts, lines)))


def _conflict_remedies(conflicts: Sequence[Conflict], lines: Mapping[str, tuple[int, str]]) -> Iterator[str]:
    for each in conflicts:
        name, dependant = each.name, each.dependant
        if name in lines:
            yield "remove the pin" if lines[name][1] else f"ask for {each.name}{each.needs}"
        elif dependant in lines:
            yield f"choose another version of {each.dependant}"
