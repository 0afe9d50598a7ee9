"""The files that a model folder must hold, checked by name and size, on the user's machine and in the images.

A model may be one folder down, because archives made by hand or by the SDK often have an extra folder.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from berth.contract.other_models import folder_kind, other_format

CONFIG = "config.json"
NULL_THRESHOLD = "null_score_diff_threshold"
"""Key in the config of a model trained on unanswerable questions: "no answer" wins if its score (the sum of two logits)
exceeds the best span's by more than this."""
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spm.model",
    "tokenizer.model",
)
_GIT_LFS = b"version https://git-lfs"
_POINTER_BYTES = 1024
"""Bytes; the limit in the specification of Git LFS."""


def model_homes(folder: Path) -> list[Path]:
    """The folder itself if it holds a config.json, otherwise its direct subfolders that do, sorted by name.

    Hidden folders are skipped: they hold files that are being written, or that a killed job left.
    """
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(entry for entry in folder.glob("[!.]*") if (entry / CONFIG).is_file())


def model_home(folder: Path) -> Path | None:
    """The folder with the model's config.json: `folder` itself or its only such subfolder; None if there is not one."""
    homes = model_homes(folder)
    return homes[0] if len(homes) == 1 else None


def first_file(home: Path, names: tuple[str, ...]) -> str | None:
    """The first of `names` that is a non-empty file in `home`."""
    return next((name for name in names if (home / name).is_file() and (home / name).stat().st_size), None)


def file_faults(folder: Path, label: str | Path, *, tokenizer: bool = True) -> list[str]:
    """What is missing in `folder` for a transformers model: sentences without full stop, with what to do.

    label: the folder's name in the sentences. tokenizer: whether one is required.
    """
    if not folder.is_dir():
        return [f"{label} does not exist: mount or unpack the model there"]
    homes = model_homes(folder)
    if len(homes) != 1:
        return [f"{label} {folder_kind(folder, homes, TOKENIZERS)}"]
    (home,) = homes
    return list(_faults_of_home(home, Path(label) / home.relative_to(folder), tokenizer=tokenizer))


def _faults_of_home(home: Path, home_label: Path, *, tokenizer: bool) -> Iterator[str]:
    weights = first_file(home, WEIGHTS)
    if weights is None:
        other, remedy = other_format(home)
        only = f" but {other}: {remedy}" if other else ": save the model next to its config.json"
        yield f"{home_label} has no weights (`{WEIGHTS[0]}` or `{WEIGHTS[2]}`){only}"
    elif missing := [name for name in _shards(home / weights) if not (home / name).is_file()]:
        number = f" and {len(missing) - 1} more" if missing[1:] else ""
        yield f"{home_label} lacks {missing[0]}{number}, which {weights} names: add the missing files"
    tokenizer_file = first_file(home, TOKENIZERS)
    if tokenizer and tokenizer_file is None:
        yield f"{home_label} has no tokenizer (`{TOKENIZERS[0]}` or `{TOKENIZERS[1]}`): save it next to the model"
    for name in filter(None, (weights, tokenizer_file)):
        if _is_git_lfs(home / name):
            yield f"{home_label / name} is a pointer of Git LFS and not the file: run `git lfs pull` and pack it again"


def _shards(index: Path) -> list[str]:
    """The weight files that an index lists; empty if the file is not an index or can't be read."""
    if not index.name.endswith(".index.json"):
        return []
    try:
        return sorted({str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _is_git_lfs(path: Path) -> bool:
    try:
        if path.stat().st_size > _POINTER_BYTES:  # larger files are not opened, because a channel may be streamed
            return False
        with path.open("rb") as file:
            return file.read(len(_GIT_LFS)) == _GIT_LFS
    except OSError:  # the image reports an unreadable file, with its user
        return False
