"""What a model folder must hold, by file names alone: on the machine before a container starts, and in the image.

Archives made by hand, and those of the SDK, often hold one folder more; a model one level down is taken.
"""

from pathlib import Path

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


def what_is_missing(folder: Path, named: str | Path, *, tokenizer: bool = True) -> str:
    """One sentence on what `folder`, which the user calls `named`, lacks of a model; empty if nothing.

    `tokenizer`: whether one must be there, too.
    """
    home = model_home(folder)
    if home is None:
        return f"{named} holds no config.json: pass a folder that a model was saved into."
    if first_file(home, WEIGHTS) is None:
        return f"{named} holds no weights: it needs a model.safetensors or pytorch_model.bin next to config.json."
    if tokenizer and first_file(home, TOKENIZERS) is None:
        return f"{named} holds no tokenizer: save it next to the model (a tokenizer.json or vocab.txt)."
    return ""
