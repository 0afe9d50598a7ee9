"""Finding the model: which folder under /opt/ml/model holds it, and whether it is complete.

A look at file names only, so that an incomplete model is named in milliseconds, before torch is imported. SageMaker
unpacks `model.tar.gz` into /opt/ml/model; archives made by hand often hold one folder more, and local mode leaves the
archive itself lying beside its contents. Both are accepted.
"""

import json
from dataclasses import dataclass
from pathlib import Path

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
USER_CODE = "code/inference.py"


class ModelFilesError(Exception):
    """The model can't be served; one sentence says what is wrong with which folder and what to do."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder that holds a complete model: configuration, weights and tokenizer."""

    folder: Path
    weights: str  # the file that was found, for the log
    tokenizer: str
    user_code: Path | None  # the user's own inference.py, if the archive brought one


def find(model_dir: Path) -> ModelFiles:
    """The model in `model_dir`, or in the one folder inside it; ModelFilesError says what is missing."""
    folder = _model_folder(model_dir)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFilesError(f"{folder}/config.json can't be read ({error}): save the model again") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelFilesError(f"{folder}/config.json names no `model_type`: save the model with `save_pretrained`")
    weights = _first(folder, WEIGHTS)
    if weights is None:
        raise ModelFilesError(
            f"{folder} has no weights (`{WEIGHTS[0]}` or `{WEIGHTS[2]}`): save the model beside its config.json"
        )
    tokenizer = _first(folder, TOKENIZERS)
    if tokenizer is None:
        raise ModelFilesError(
            f"{folder} has no tokenizer (`{TOKENIZERS[0]}` or `{TOKENIZERS[1]}`): save it beside the model"
        )
    candidates = (model_dir / USER_CODE, folder / USER_CODE)
    user_code = next((path for path in candidates if path.is_file()), None)
    return ModelFiles(folder, weights, tokenizer, user_code)


def _first(folder: Path, names: tuple[str, ...]) -> str | None:
    """The first of `names` that is a file in `folder` and not empty."""
    return next((name for name in names if (folder / name).is_file() and (folder / name).stat().st_size), None)


def _model_folder(model_dir: Path) -> Path:
    if not model_dir.is_dir():
        raise ModelFilesError(f"{model_dir} does not exist: mount or unpack the model there")
    if (model_dir / "config.json").is_file():
        return model_dir
    nested = sorted(path.parent for path in model_dir.glob("*/config.json") if path.is_file())
    if len(nested) == 1:
        return nested[0]
    if nested:
        names = ", ".join(path.name for path in nested)
        raise ModelFilesError(f"{model_dir} holds several models ({names}): put one of them there")
    archive = next(iter(sorted(model_dir.glob("*.tar.gz"))), None)
    if archive is not None:
        raise ModelFilesError(f"{model_dir} holds {archive.name} but no config.json: unpack the archive there")
    raise ModelFilesError(f"{model_dir} has no config.json, nor has a folder in it: put the files of one model there")
