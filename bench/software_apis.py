"""What scripts can use of transformers, accelerate, datasets and evaluate in one software set and not in another.

Usage: python -m bench.software_apis [NAME …]

Installs the packages of each set of docker/pins.toml that is named (default: all that a profile has), without what they
need, into a folder that is thrown away, reads their source (package_api.py), and writes what differs into
runtime/hints/software_apis.json, from which runtime/hints/removed_apis.py gives a failed script its line.
"""

import fnmatch
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from packaging.version import Version

from bench import program
from bench.package_api import Api, Package
from berth.common.errors import UserError
from berth.images import pins

PACKAGES = ("transformers", "accelerate", "datasets", "evaluate")
TABLE = pins.ROOT / "runtime" / "hints" / "software_apis.json"
_OLD_CONSTANTS = ("*_PRETRAINED_MODEL_ARCHIVE_LIST", "*_PRETRAINED_CONFIG_ARCHIVE_MAP")
_ANSWERED = ("Tokenizer", "TokenizerFast", "ImageProcessorFast")
BOTH_WAYS = tuple(
    f"{name}.__init__" for name in ("TrainingArguments", "Seq2SeqTrainingArguments", "Trainer", "Seq2SeqTrainer")
)
"""Whose keywords stand in the table also where the newest set alone has them."""
COMMAND = "python -m bench.software_apis"
Names = dict[str, str]
"""The sets that have them → names, each parted by blanks."""


def versions(software: str, found: pins.Pins) -> dict[str, str]:
    """Of PACKAGES, in the first profile that has that set."""
    row = next((each for each in found.profiles.values() if each.software.name == software), None)
    if row is None:
        raise UserError(f"no profile has the software set {software!r}: name one of {', '.join(sets(found))}.")
    return {name: row.packages[name] for name in PACKAGES}


def sets(found: pins.Pins) -> list[str]:
    """The software sets that profiles have, that of the newest transformers first."""
    age = {row.software.name: Version(row.packages["transformers"]) for row in found.profiles.values()}
    return sorted(age, key=lambda name: (age[name], name), reverse=True)


def profiles(found: pins.Pins, chosen: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What a hint must know of the profiles with those sets, to name the one that is for the same hardware."""
    return {
        row.name: {"software": row.software.name, "hardware": row.hardware, "cuda": bool(row.cuda)}
        for row in found.profiles.values()
        if row.software.name in chosen
    }


def install(wanted: Mapping[str, str], folder: Path) -> None:
    """The packages in those versions, and nothing else."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--no-compile"]
    command += ["--target", str(folder), *(f"{name}=={version}" for name, version in wanted.items())]
    if subprocess.run(command).returncode:
        raise UserError(f"pip could not install {', '.join(command[-len(wanted) :])}; its own lines above say why.")


def differing(of: Mapping[str, Iterable[str]]) -> Names:
    """The names that some sets have and some have not, from the names of each set."""
    has: dict[str, list[str]] = {}
    for name in of:
        for each in of[name]:
            has.setdefault(each, []).append(name)
    groups: dict[str, list[str]] = {}
    for each, holders in sorted(has.items()):
        if len(holders) < len(of):
            groups.setdefault(" ".join(holders), []).append(each)
    return {holders: " ".join(names) for holders, names in sorted(groups.items())}


def differing_by(apis: Mapping[str, Api], part: Callable[[Api], Mapping[str, set[str]]]) -> dict[str, Names]:
    """Those of each module, function or class that all sets have, in which they differ."""
    common = set.intersection(*(set(part(api)) for api in apis.values()))
    found = {owner: differing({name: part(api)[owner] for name, api in apis.items()}) for owner in sorted(common)}
    return {owner: names for owner, names in found.items() if names}


def shorten(names: Names, exported: Iterable[set[str]], everywhere: set[str]) -> Names:
    """The same, with `Llama*` in the place of those that one of transformers' models exports, and `*_ARCHIVE_LIST` in
    that of its old constants, as far as one group has all such names.

    exported: what each model of each set exports; `everywhere`: the names that all sets have.
    """
    left = {holders: set(text.split()) for holders, text in names.items()}
    prefixes = {each for model in exported for each in model_prefixes(model) if len(each) > 2}
    for pattern in [*_OLD_CONSTANTS, *(f"{each}*" for each in sorted(prefixes, key=len))]:
        of = [holders for holders, each in left.items() if fnmatch.filter(each, pattern)]
        if len(of) == 1 and not fnmatch.filter(everywhere, pattern):
            left[of[0]] = {*left[of[0]].difference(fnmatch.filter(left[of[0]], pattern)), pattern}
    return {holders: " ".join(sorted(each)) for holders, each in left.items()}


def model_prefixes(exported: set[str]) -> set[str]:
    """How the names of a model begin: Llama, of LlamaConfig and LlamaForCausalLM."""
    classes = sorted(each for each in exported if re.fullmatch(r"[A-Z]\w*[a-z]\w*", each))
    same = takewhile(lambda pair: pair[0] == pair[1], zip(classes[0], classes[-1], strict=False)) if classes else ()
    common = "".join(letter for letter, _ in same) if len(classes) > 1 else ""
    return {common} | {each.removesuffix("Config") for each in classes if each.endswith("Config")}


def compare(folders: Mapping[str, Path]) -> dict[str, dict[str, Names]]:
    """The tables `names`, `keywords` and `attributes`, of the packages in the folder of each set, the newest set first.

    Of what is inside of a package's modules and classes, which is thousands, only what the newest set lacks: that is
    what scripts of an older time die of.
    """
    newest = next(iter(folders))
    tables: dict[str, dict[str, Names]] = {"names": {}, "keywords": {}, "attributes": {}}
    for package in PACKAGES:
        read = {name: Package(folder, package) for name, folder in folders.items()}
        apis = {name: each.api() for name, each in read.items()}
        names = differing_by(apis, lambda api: api.names)
        if package in names:
            exported = [each for one in read.values() for each in one.model_names().values()]
            everywhere = set.intersection(*(api.names[package] for api in apis.values()))
            names[package] = shorten(names[package], exported, everywhere)
            names[package] = without_answered(names[package], newest)
        whole = {name: names.pop(name) for name in (package, f"{package}.models") if name in names}
        tables["names"] |= whole | gone(names, newest)
        for api in apis.values():
            api.keywords = exported_only(api.keywords, api.names[package])
            api.attributes = exported_only(api.attributes, api.names[package])
        keywords = differing_by(apis, lambda api: api.keywords)
        keywords = gone(keywords, newest) | {each: keywords[each] for each in BOTH_WAYS if each in keywords}
        attributes = gone(differing_by(apis, lambda api: api.attributes), newest)
        tables["keywords"] |= {f"{package}:{owner}": row for owner, row in keywords.items()}
        tables["attributes"] |= {f"{package}:{owner}": row for owner, row in attributes.items()}
    return tables


def exported_only(table: Mapping[str, set[str]], exported: set[str]) -> dict[str, set[str]]:
    """Those of classes and functions that the package itself exports."""
    return {owner: names for owner, names in table.items() if owner.partition(".")[0] in exported}


def without_answered(names: Names, newest: str) -> Names:
    """The same without those names of tokenizers and image processors that transformers 5 answers by another class,
    as it does with most (BertTokenizerFast).
    """
    kept = {
        holders: [each for each in text.split() if newest in holders.split() or not each.endswith(_ANSWERED)]
        for holders, text in names.items()
    }
    return {holders: " ".join(each) for holders, each in kept.items() if each}


def gone(table: Mapping[str, Names], newest: str) -> dict[str, Names]:
    """The part of it that a set does not have."""
    left = {
        owner: {each: names for each, names in of.items() if newest not in each.split()} for owner, of in table.items()
    }
    return {owner: names for owner, names in left.items() if names}


def render(found: pins.Pins, chosen: Sequence[str], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The text of the table, a line for each owner of names."""
    head = {"sets": {name: versions(name, found) for name in chosen}, "profiles": profiles(found, chosen)}
    parts = [f'"command": {json.dumps(COMMAND)}']
    for part, rows in {**head, **tables}.items():
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        parts.append(f"{json.dumps(part)}: {{\n{lines}\n}}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("software_apis", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="software sets; default: all that a profile has")
    given = parser.parse_args(words)
    found = pins.load()
    for name in given.names:
        versions(name, found)  # refuses one that is none
    chosen = [name for name in sets(found) if not given.names or name in given.names]
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary) / name for name in chosen}
        for name, folder in folders.items():
            install(versions(name, found), folder)
        TABLE.write_text(render(found, chosen, compare(folders)), "utf-8")
    return 0


if __name__ == "__main__":
    program.end_with(main)
