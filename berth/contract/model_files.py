"""What a model folder must hold, by names and sizes of files: on the machine as in the images.

Archives made by hand, and those of the SDK, often hold one folder more; a model one level down is taken.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from berth.contract.other_models import folder_kind, other_format

CONFIG = "config.json"
NULL_THRESHOLD = "null_score_diff_threshold"
"""In the config of a model that was trained on questions without an answer: by how much "no answer" must be more likely
than the best span, as a difference of sums of two logits."""
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
_MOST_OF_POINTER = 1024
"""Bytes, which the specification of Git LFS allows."""


def model_homes(folder: Path) -> list[Path]:
    """The folder itself if it holds a config.json, else all those right below that do, by their names.

    Not hidden ones: what is being written, or was when a job was killed, is in one.
    """
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(entry for entry in folder.glob("[!.]*") if (entry / CONFIG).is_file())


def model_home(folder: Path) -> Path | None:
    """The folder itself, or the only folder right below, that holds a config.json."""
    homes = model_homes(folder)
    return homes[0] if len(homes) == 1 else None


def first_file(home: Path, names: tuple[str, ...]) -> str | None:
    """The first of `names` that is a file in `home` and not empty."""
    return next((name for name in names if (home / name).is_file() and (home / name).stat().st_size), None)


def file_faults(folder: Path, named: str | Path, *, tokenizer: bool = True) -> list[str]:
    """What `folder`, which the user calls `named`, lacks of a model of transformers: a sentence each, without its full
    stop, with what to do. `tokenizer`: whether one must be there, too.
    """
    if not folder.is_dir():
        return [f"{named} does not exist: mount or unpack the model there"]
    homes = model_homes(folder)
    if len(homes) != 1:
        return [f"{named} {folder_kind(folder, homes, TOKENIZERS)}"]
    (home,) = homes
    return list(_faults_of_home(home, Path(named) / home.relative_to(folder), tokenizer=tokenizer))


def _faults_of_home(home: Path, called: Path, *, tokenizer: bool) -> Iterator[str]:
    weights = first_file(home, WEIGHTS)
    if weights is None:
        other, remedy = other_format(home)
        only = f" but {other}: {remedy}" if other else ": save the model next to its config.json"
        yield f"{called} has no weights (`{WEIGHTS[0]}` or `{WEIGHTS[2]}`){only}"
    elif lacking := [name for name in _shards(home / weights) if not (home / name).is_file()]:
        number = f" and {len(lacking) - 1} more" if lacking[1:] else ""
        yield f"{called} lacks {lacking[0]}{number}, which {weights} names: add the missing files"
    found = first_file(home, TOKENIZERS)
    if tokenizer and found is None:
        yield f"{called} has no tokenizer (`{TOKENIZERS[0]}` or `{TOKENIZERS[1]}`): save it next to the model"
    for name in filter(None, (weights, found)):
        if _is_git_lfs(home / name):
            yield f"{called / name} is a pointer of Git LFS and not the file: run `git lfs pull` and pack it again"


def _shards(index: Path) -> list[str]:
    """The files of weights that an index names; none for a file that is no index, or can't be read."""
    if not index.name.endswith(".index.json"):
        return []
    try:
        return sorted({str(name) for name in json.loads(index.read_text("utf-8"))["weight_map"].values()})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _is_git_lfs(path: Path) -> bool:
    try:
        if path.stat().st_size > _MOST_OF_POINTER:  # and is not opened, for a channel may be streamed
            return False
        with path.open("rb") as file:
            return file.read(len(_GIT_LFS)) == _GIT_LFS
    except OSError:  # the image says which user can't read it
        return False
