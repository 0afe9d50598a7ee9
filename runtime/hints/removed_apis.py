"""What to do about an API of transformers, accelerate, datasets or evaluate that the image's version does not have,
while another software set of the kit's does.

software_apis.json says which set has what; `python -m bench.software_apis` makes it of the packages themselves. That
an API is missing here is what the exception says: nothing is looked for that has not failed.
"""

import ast
import contextlib
import fnmatch
import functools
import importlib.resources
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from berth.contract.deprecated import DEPRECATED_NAMES
from berth.runtime import software
from berth.runtime.gpu.driver import torch_cuda
from berth.runtime.hints.program import ProgramContext, RaisedException

PACKAGES = ("transformers", "accelerate", "datasets", "evaluate")
_INSIDE = re.compile(rf"/(?:site|dist)-packages/(?:{'|'.join(PACKAGES)})/")
_ARGUMENTS = ("TrainingArguments.__init__", "Seq2SeqTrainingArguments.__init__")
_KINDS = ("TypeError", "ImportError", "ModuleNotFoundError", "AttributeError", "ValueError")
_OWN_FILES = 300
_SHOWN = 4
# In the words of Python, of transformers' lazy modules and of argparse.
_KEYWORD = re.compile(r"([A-Za-z_][\w.]*)\(\) got an unexpected keyword argument '(\w+)'")
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'(?: \((.+?)\))?")
_MODULE = re.compile(r"No module named '([\w.]+)'")
_MODULE_ATTRIBUTE = re.compile(r"module '?([\w.]+?)'? has no attribute '?(\w+)'?")
_ATTRIBUTE = re.compile(r"(?:type object )?'(\w+)'(?: object)? has no attribute '(\w+)'")
_UNUSED = re.compile(r"Some specified arguments are not used by the HfArgumentParser: \[(.*)")
_UNRECOGNIZED = re.compile(r"^\S+: error: unrecognized arguments: (.*)$")
_OPTION = re.compile(r"(?:^|[\s'\"])--([A-Za-z][\w-]*)")
_MESSAGES = (_KEYWORD, _NAME, _MODULE, _MODULE_ATTRIBUTE, _ATTRIBUTE, _UNUSED, _UNRECOGNIZED)

_NEW_KEYWORDS = {
    "fsdp_min_num_params": "use `fsdp_config`",
    "fsdp_transformer_layer_cls_to_wrap": "use `fsdp_config`",
    "include_inputs_for_metrics": 'use `include_for_metrics=["inputs"]`',
    "logging_dir": "set the environment variable TENSORBOARD_LOGGING_DIR",
    "mp_parameters": (
        "leave it out and set BERTH_SMDISTRIBUTED to open, which has Trainer split the model by the job's own"
    ),
    "overwrite_output_dir": "leave it out",
    "sharded_ddp": "use `fsdp`",
    "warmup_ratio": "use `warmup_steps`, which below 1 is a share of all steps",
}
"""Keyword of TrainingArguments → what to do, where berth.contract.deprecated, which is run_qa's, does not say it."""
_OF_ACCELERATOR = {
    "dispatch_batches": "put it into a `DataLoaderConfiguration` as `dataloader_config`",
    "even_batches": "put it into a `DataLoaderConfiguration` as `dataloader_config`",
    "logging_dir": "rename it to `project_dir`",
}
_NEW_NAMES = {
    "AdamW": "use `torch.optim.AdamW`",
    "AutoModelForVision2Seq": "use `AutoModelForImageTextToText`",
    "AutoModelWithLMHead": "use `AutoModelForCausalLM`, `AutoModelForMaskedLM` or `AutoModelForSeq2SeqLM`",
    "as_target_tokenizer": "give the tokenizer `text_target`",
    "batch_encode_plus": "call the tokenizer itself",
    "encode_plus": "call the tokenizer itself",
    "deepspeed": "use `transformers.integrations.deepspeed`",
    "generation_utils": "use `transformers.generation`",
    "is_torch_tpu_available": "use `is_torch_xla_available`",
    "list_metrics": "use `evaluate.list_evaluation_modules`",
    "load_metric": "use `evaluate.load`",
    "set_caching_enabled": "use `enable_caching` or `disable_caching`",
}
"""Name of a module, or of a class, that is gone → what to do."""
_RENAMED = {"tokenizer": "processing_class"}
"""Keyword and attribute of Trainer → its later name."""

Names = Mapping[str, str]
"""The software sets that have them, the newest first → names."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What the image has: versions of PACKAGES, as far as they are installed, its profile, whether torch has CUDA."""

    versions: Mapping[str, str]
    profile: str = ""
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class OwnCode:
    """What a user's own code defines: bases and methods of classes, functions, and modules at its top."""

    bases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    methods: Mapping[str, frozenset[str]] = field(default_factory=dict)
    functions: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()
    parses_arguments: bool = False

    def foreign(self, name: str, seen: frozenset[str] = frozenset()) -> list[str]:
        """The classes of packages that a class stands for: itself, or those that his own inherits from."""
        if name not in self.bases or name in seen:
            return [name]  # also of `class Trainer(transformers.Trainer)`, which has its own name for a base
        return [each for base in self.bases[name] for each in self.foreign(base, seen | {name})]


@dataclass(frozen=True, slots=True)
class _Missing:
    """One name that is missing, `shown` as a script has it, `kind` the table that has it, `sets` those that have it."""

    package: str
    name: str
    shown: str
    kind: str
    sets: tuple[str, ...]


def exception_hint(raised: RaisedException, context: ProgramContext) -> str:
    """For an exception of what the user's own code calls; empty where it is none of a removed API."""
    outside = [file for file in raised.files if not _INSIDE.search(file) and not file.startswith("<")]
    own = bool(outside) and context.is_own(outside[-1])
    return _hint(raised.message, context.code_dir) if own and raised.name in _KINDS else ""


def line_hint(line: str, context: ProgramContext) -> str:
    """The same for the last line of a program that argparse ended."""
    return _hint(line, context.code_dir)


def _hint(message: str, code_dir: Path) -> str:
    """That of a message with one of the forms; nothing where it can't be made, for the failure itself must be told."""
    if not any(each.match(message) for each in _MESSAGES):
        return ""
    try:
        return hint(message, read_own_code(code_dir), installed())
    except Exception:
        return ""


def hint(message: str, own: OwnCode, here: Installed) -> str:
    """The hint of a message, in which nothing but names of the table counts."""
    missing = [each for each in _missing(message, own) if not _has(here, each)]
    if not missing:
        return ""
    first = missing[0]
    same = [each for each in missing if (each.package, each.sets) == (first.package, first.sets)][:_SHOWN]
    ways = ", or ".join(filter(None, [_profile(first.sets, here), _replacements(same, here)]))
    names = ", ".join(f"`{each.shown}`" for each in same)
    return f"; {first.package} {_version(first, here)} has no {names}" + (f"; {ways}" if ways else "")


def _missing(message: str, own: OwnCode) -> Iterator[_Missing]:
    if match := _KEYWORD.match(message):
        owner, _, method = match[1].rpartition(".")
        if not owner and method not in own.functions:
            yield from _found("keywords", method, match[2])
        elif owner and method not in own.methods.get(owner, ()):
            yield from _first("keywords", [f"{each}.{method}" for each in own.foreign(owner)], match[2])
    elif match := _NAME.match(message):
        if match[2].partition(".")[0] not in own.modules:
            yield from _found("names", match[2], match[1])
    elif match := _MODULE.match(message):
        if match[1].partition(".")[0] not in own.modules:
            for each in _found("names", *match[1].rpartition(".")[::2]):
                yield replace(each, shown=match[1])
    elif match := _MODULE_ATTRIBUTE.match(message):
        if match[1].partition(".")[0] not in own.modules:
            yield from _found("names", match[1], match[2])
    elif match := _ATTRIBUTE.match(message):
        yield from _first("attributes", [_likely_base(each) for each in own.foreign(match[1])], match[2])
    elif match := _UNUSED.match(message) or (_UNRECOGNIZED.match(message) if own.parses_arguments else None):
        for option in dict.fromkeys(_OPTION.findall(match[1])):
            yield from _first("keywords", _ARGUMENTS, option.replace("-", "_"))


def _likely_base(name: str) -> str:
    """The class of transformers' that has what all tokenizers or models have."""
    if re.search(r"\wTokenizer(Fast)?$", name):
        return "PreTrainedTokenizerBase"
    return "PreTrainedModel" if re.search(r"\w(For[A-Z]\w+|Model)$", name) and name != "PreTrainedModel" else name


def _first(kind: str, owners: Iterable[str], name: str) -> list[_Missing]:
    """That of the first owner that has it."""
    return next(filter(None, (list(_found(kind, owner, name)) for owner in owners)), [])


def _found(kind: str, owner: str, name: str) -> Iterator[_Missing]:
    """The name in a table, if it is there."""
    rows = table()[kind]
    for package in PACKAGES:
        row: Names = rows.get(owner if kind == "names" else f"{package}:{owner}", {})
        if kind == "names" and owner.partition(".")[0] != package:
            continue
        for sets, names in row.items():
            listed = names.split()
            if name in listed or any(fnmatch.fnmatchcase(name, each) for each in listed if "*" in each):
                yield _Missing(package, name, name, kind, tuple(sets.split()))
                return


def _has(here: Installed, missing: _Missing) -> bool:
    """Whether the table says that the installed version has it: then something else is wrong."""
    version = here.versions.get(missing.package, "")
    return not version or any(table()["sets"][each][missing.package] == version for each in missing.sets)


def _version(missing: _Missing, here: Installed) -> str:
    """`5` where no set of the newest major version has it; else as much as tells a version from others: `4.26`."""
    package, sets = missing.package, table()["sets"]
    major, minor = [*here.versions[package].split("."), "0"][:2]
    of_this = [name for name, each in sets.items() if each[package].partition(".")[0] == major]
    gone = next(iter(sets)) in of_this and not set(of_this) & set(missing.sets)
    return major if gone and major != "0" else f"{major}.{minor}"


def _profile(sets: Sequence[str], here: Installed) -> str:
    """The profile that has it, for hardware of the same kind; that of the same torch before others."""
    profiles: Mapping[str, Mapping[str, Any]] = table()["profiles"]
    hardware = profiles[here.profile]["hardware"] if here.profile in profiles else ""
    fitting = [name for name, row in profiles.items() if row["software"] in sets and row["cuda"] == here.cuda]
    fitting.sort(key=lambda name: profiles[name]["hardware"] != hardware)
    return f"run this script in the profile {fitting[0]}" if fitting else ""


def _replacements(missing: Sequence[_Missing], here: Installed) -> str:
    """`rename it to …`, of several names with each name."""
    found = [(each.name, way) for each in missing if (way := _replacement(each, here))]
    if len(missing) == 1:
        return "".join(way for _, way in found)
    return ", ".join(
        way.replace(" it ", f" `{name}` ") if " it " in way else f"{way} for `{name}`" for name, way in found
    )


def _replacement(missing: _Missing, here: Installed) -> str:
    """What to write in its place: a later name where older sets have this one, an earlier one where the newest has it;
    empty where none is known.
    """
    if next(iter(table()["sets"])) not in missing.sets:
        return replacement(missing.package, missing.name, missing.kind)
    earlier = {**{old: each.new for old, each in DEPRECATED_NAMES.items()}, **_RENAMED}
    old = next((each for each, new in earlier.items() if new == missing.name), "")
    gone = [each for each in _first("keywords", _ARGUMENTS, old) if not _has(here, each)]
    return f"rename it to `{old}`" if old and missing.kind == "keywords" and not gone else ""


def replacement(package: str, name: str, kind: str) -> str:
    """What took the place of a name of older versions; empty where nothing is known."""
    if name in _RENAMED:
        return f"rename it to `{_RENAMED[name]}`"
    if kind == "names" and (processor := re.fullmatch(r"([A-Z]\w+)FeatureExtractor", name)):
        return f"use `{processor[1]}ImageProcessor`"
    if kind == "names" or name in _NEW_NAMES:
        return _NEW_NAMES.get(name, "")
    if package != "transformers":
        return _OF_ACCELERATOR.get(name, "") if package == "accelerate" else ""
    return _NEW_KEYWORDS.get(name) or _of_run_qa(name)


def _of_run_qa(name: str) -> str:
    """What run_qa does with a hyperparameter of that name, as advice."""
    known = DEPRECATED_NAMES.get(name)
    if known is None:
        return ""
    if known.new:
        return f"rename it to `{known.new}`"
    value = True if known.type is bool else ""
    try:
        new = known.apply(value)[0] if known.apply else {}
    except ValueError:
        return ""
    chosen = " and ".join(f'`{each}="{content}"`' for each, content in new.items())
    return f"use {chosen}" if chosen else "leave it out"


@functools.cache
def table() -> Mapping[str, Any]:
    """What bench/software_apis.py found."""
    text = importlib.resources.files("berth.runtime.hints").joinpath("software_apis.json").read_text("utf-8")
    read: dict[str, Any] = json.loads(text)
    return read


def installed(path: Path = software.PATH) -> Installed:
    """That of this Python; `path` is what the image says of itself."""
    versions = {name: found for name in PACKAGES if (found := software.installed(name))}
    carried = software.read(path)
    return Installed(versions, carried.profile if carried else "", torch_cuda() is not None)


def read_own_code(code_dir: Path) -> OwnCode:
    """Of the files of a source folder, as far as they can be parsed."""
    bases: dict[str, tuple[str, ...]] = {}
    methods: dict[str, frozenset[str]] = {}
    functions: set[str] = set()
    parses = False
    for _, path in zip(range(_OWN_FILES), sorted(code_dir.rglob("*.py")), strict=False):
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            text = path.read_text("utf-8")
            parses = parses or "HfArgumentParser" in text
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    bases[node.name] = tuple(ast.unparse(each).rpartition(".")[2] for each in node.bases)
                    methods[node.name] = frozenset(each.name for each in node.body if isinstance(each, ast.FunctionDef))
                elif isinstance(node, ast.FunctionDef):
                    functions.add(node.name)
    modules = {path.stem for path in code_dir.glob("*.py")} | {path.name for path in code_dir.glob("*/")}
    return OwnCode(bases, methods, frozenset(functions), frozenset(modules), parses)
