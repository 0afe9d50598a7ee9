"""Replacements for arguments and imports that the image's transformers does not have.

If an exception says that such a name is missing, all user sources are searched, so that the hint lists every one. The
table is based on the sources of transformers 4.26, 4.33, 4.40, 4.41, 4.45, 4.46, 4.49, 4.53, 4.57, 5.0, 5.5, 5.15 and
5.23.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from berth.runtime.hints.images import PROFILES, ThisImage, image_with, this_image
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.sources import calls, trees


@dataclass(frozen=True, slots=True)
class OldName:
    """What to write instead of a name, and the last and first release of transformers that has it."""

    advice: str
    until: str = "99"
    since: str = "0"

    def is_in(self, version: Version) -> bool:
        """Whether that release of transformers has it."""
        return Version(self.since) <= Version(_minor(version)) <= Version(self.until)


ARGUMENTS, TRAINER, IMPORTS = "TrainingArguments", "Trainer", "import"
NAMES: Mapping[str, Mapping[str, OldName]] = {
    ARGUMENTS: {
        "evaluation_strategy": OldName("rename evaluation_strategy to eval_strategy", "4.49"),
        "eval_strategy": OldName("rename eval_strategy to evaluation_strategy", since="4.41"),
        "no_cuda": OldName("rename no_cuda to use_cpu", "4.57"),
        "per_gpu_train_batch_size": OldName("rename per_gpu_train_batch_size to per_device_train_batch_size", "4.57"),
        "per_gpu_eval_batch_size": OldName("rename per_gpu_eval_batch_size to per_device_eval_batch_size", "4.57"),
        "push_to_hub_token": OldName("rename push_to_hub_token to hub_token", "4.57"),
        "overwrite_output_dir": OldName("leave out overwrite_output_dir", "4.57"),
        "save_safetensors": OldName("leave out save_safetensors", "4.57"),
        "fp16_backend": OldName("leave out fp16_backend", "4.57"),
        "mp_parameters": OldName("leave out mp_parameters and set BERTH_SMDISTRIBUTED to open", "4.57"),
        "sharded_ddp": OldName("for sharded_ddp use fsdp", "4.33"),
        "group_by_length": OldName('for group_by_length use train_sampling_strategy="group_by_length"', "5.0"),
        "warmup_ratio": OldName("for warmup_ratio use warmup_steps, which below 1 is a share of all steps", "5.5"),
        "logging_dir": OldName("for logging_dir set the variable TENSORBOARD_LOGGING_DIR", "5.5"),
    },
    TRAINER: {
        "tokenizer": OldName("rename tokenizer to processing_class", "4.57"),
        "processing_class": OldName("rename processing_class to tokenizer", since="4.46"),
    },
    IMPORTS: {"AdamW": OldName("for AdamW use torch.optim.AdamW", "4.49")},
}
"""Owner of the name → name."""
CANDIDATES = ("4.57.6", "4.49.0")
"""Releases for a new image; scripts for transformers 4.41 and later run with one of them. `profile add` was tried with
both.
"""
_INSIDE = re.compile(r"/(?:site|dist)-packages/(?:transformers|accelerate|datasets|evaluate)/")
_MOST_CHARACTERS = 560
"""Limit of the replacements; the whole sentence, with the exception and the image, may have 900."""
_KEYWORD = re.compile(r"([A-Za-z_]\w*)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'")
_IMPORT = re.compile(r"cannot import name '(\w+)' from '(transformers|datasets)'")
_UNUSED = re.compile(r"Some specified arguments are not used by the HfArgumentParser: \[(.*)")
_OPTION = re.compile(r"(?:^|[\s'\"])--([A-Za-z][\w-]*)")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """The hint for an exception in a call of the user's own code; empty unless a removed name caused it."""
    outside = [file for file in raised.files if not _INSIDE.search(file) and not file.startswith("<")]
    own = bool(outside) and context.is_own(outside[-1])
    return message_hint(raised.message, context.code_dir, this_image()) if own else ""


def message_hint(message: str, code_dir: Path, here: ThisImage) -> str:
    """The replacements, and the image that has all names of the script; "" for other messages."""
    if not here.versions.get("transformers"):
        return ""
    version = Version(here.versions["transformers"])
    imported = _IMPORT.match(message)
    if imported and imported[1] == "load_metric":
        return "; datasets has no `load_metric` any more: use evaluate.load"
    pairs = _missing(message)
    missing = _known(pairs)
    if not missing:
        # A script that imports an unknown name was written for an older release.
        is_old = imported and imported[2] == "transformers" and version.major >= 5
        return f"; for scripts of transformers 4 {image_with(CANDIDATES[0], here)}" if is_old else ""
    used, own_classes = names_used(code_dir)
    keyword = _KEYWORD.match(message)
    if all(each.is_in(version) for each in missing) or (keyword and keyword[1] in own_classes):
        return ""  # the image has the names, or the class is the user's own
    used = [*missing, *(each for each in used if each not in missing)]
    advice = [each.advice for each in used if not each.is_in(version)]
    problem = f"has no `{pairs[0][1]}`" if len(advice) == 1 else f"lacks {len(advice)} names of this script"
    ways = ", or ".join(filter(None, ["; ".join(advice)[:_MOST_CHARACTERS], _image(used, version, here)]))
    return f"; transformers {_minor(version)} {problem}: {ways}"


def _missing(message: str) -> list[tuple[str, str]]:
    """The names of NAMES that an exception says are missing, each with its owner."""
    found: list[tuple[str, str]] = []
    if match := _KEYWORD.match(message):
        found = [(_owner(match[1]), match[2])]
    elif match := _IMPORT.match(message):
        found = [(IMPORTS, match[1])]
    elif match := _UNUSED.match(message):
        found = [(ARGUMENTS, option.replace("-", "_")) for option in _OPTION.findall(match[1])]
    return [(owner, name) for owner, name in found if name in NAMES.get(owner, {})]


def _known(names: Sequence[tuple[str, str]]) -> list[OldName]:
    return [NAMES[owner][name] for owner, name in dict.fromkeys(names) if name in NAMES.get(owner, {})]


def _owner(class_name: str) -> str:
    """The class of transformers that a class of this name is, or is probably derived from."""
    return next((each for each in (ARGUMENTS, TRAINER) if class_name.endswith(each)), "")


def _image(used: Sequence[OldName], version: Version, here: ThisImage) -> str:
    """The profile, or the command for a new image, whose transformers has all names of the script."""
    kits = [row.transformers for row in PROFILES.values() if row.hardware == here.hardware]
    for candidate in (max(kits, key=Version), *CANDIDATES, min(kits, key=Version)):
        release = Version(candidate)
        if _minor(release) != _minor(version) and all(each.is_in(release) for each in used):
            return image_with(candidate, here)
    return ""


def _minor(version: Version) -> str:
    return ".".join(map(str, version.release[:2]))


def names_used(code_dir: Path) -> tuple[list[OldName], frozenset[str]]:
    """The known names in a source folder, and its classes with their own __init__."""
    found: list[tuple[str, str]] = []
    own_classes = set[str]()
    for tree in trees(code_dir):
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "transformers":
                found += [(IMPORTS, each.name) for each in node.names]
            elif isinstance(node, ast.ClassDef) and "__init__" in [getattr(each, "name", "") for each in node.body]:
                own_classes.add(node.name)
        found += [(_owner(name), each.arg) for name, call in calls(tree) for each in call.keywords if each.arg]
    return _known(found), frozenset(own_classes)
