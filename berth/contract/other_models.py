"""Recognises folders without a usable transformers model by their file names, on the user's machine and in both images.

Only names and small JSON files are read; nothing is unpickled or imported.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from berth.contract.words import few

HANDLER = 'give it a code/inference.py with a model_fn: three lines, "A model with another head" in serve/README.md'
_ADAPTER = "adapter_config.json"
_EMBEDDER = "modules.json"
_FROM_TENSORFLOW = "save it for PyTorch, such as by from_pretrained(FOLDER, from_tf=True) in transformers 4"
_FROM_FLAX = "save it for PyTorch, such as by from_pretrained(FOLDER, from_flax=True) in transformers 4"
_SAVE_WHOLE = f"save the model with save_pretrained, or {HANDLER}"
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_MOST_FILES = 10_000
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")

_OTHER_FORMATS = (
    ("tf_model.h5", "a TensorFlow model", _FROM_TENSORFLOW),
    ("flax_model.msgpack", "a Flax model", _FROM_FLAX),
    ("*.gguf", "a GGUF model, which llama.cpp reads", HANDLER),
    ("openvino_model.xml", "an OpenVINO model", HANDLER),
    ("saved_model.pb", "a TensorFlow SavedModel", HANDLER),
    ("*.onnx", "an ONNX model", HANDLER),
    ("*.keras", "a Keras model", HANDLER),
    ("*.h5", "a Keras model", HANDLER),
    ("*.tflite", "a TensorFlow Lite model", HANDLER),
    ("*.msgpack", "a Flax model", HANDLER),
    ("MLmodel", "an MLflow model", HANDLER),
    ("config.cfg", "a spaCy pipeline", HANDLER),
    ("xgboost-model*", "an XGBoost model", HANDLER),
    ("*.ubj", "an XGBoost model", HANDLER),
    ("*.bst", "an XGBoost model", HANDLER),
    ("*.cbm", "a CatBoost model", HANDLER),
    ("*.pkl", "a pickle, such as scikit-learn's", HANDLER),
    ("*.pickle", "a pickle, such as scikit-learn's", HANDLER),
    ("*.joblib", "a joblib file, such as scikit-learn's", HANDLER),
    ("*.skops", "a scikit-learn model", HANDLER),
    ("*.mar", "a TorchServe archive", HANDLER),
    ("*.nemo", "a NeMo model", HANDLER),
    ("*.plan", "a TensorRT engine", HANDLER),
    ("*.engine", "a TensorRT engine", HANDLER),
    ("*_model_states.pt", "a DeepSpeed checkpoint", "make one file of it with its zero_to_fp32.py"),
    ("*.distcp", "a distributed checkpoint of PyTorch", "save the whole model with save_pretrained"),
    ("*.ckpt", "a checkpoint of a training", "save the model with save_pretrained"),
    ("*.pt", "a PyTorch file", _SAVE_WHOLE),
    ("*.pth", "a PyTorch file", _SAVE_WHOLE),
    ("*.tar.gz", "an archive", "unpack it there"),
    ("*.tgz", "an archive", "unpack it there"),
    ("*.tar", "an archive", "unpack it there"),
    ("*.zip", "an archive", "unpack it there"),
)
"""File name, what the file is, what to do; the first matching row is used."""


def other_format(folder: Path, files: tuple[str, ...] | None = None) -> tuple[str, str]:
    """The format of a folder without config.json or PyTorch weights, and what to do; two empty texts if unknown.

    Example of a format: `a pickle, such as scikit-learn's (model.pkl)`. files: names below the folder, if known.
    """
    names = _file_names(folder) if files is None else files
    for pattern, what, remedy in _OTHER_FORMATS:
        if found := next((name for name in names if fnmatch(PurePosixPath(name).name, pattern)), None):
            return f"{what} ({found})", remedy
    return "", ""


def folder_kind(folder: Path, homes: Sequence[Path], tokenizers: Sequence[str]) -> str:
    """What a folder without exactly one model holds, and what to do: a sentence after the folder's name; never empty.

    homes: its folders with a config.json, none or several. tokenizers: names of tokenizer files.
    """
    files = _file_names(folder)
    for marker, described in _MARKERS.items():
        if found := next((name for name in files if PurePosixPath(name).name == marker), None):
            return described(folder / found)
    if homes:
        return _several([home.name for home in homes])
    if deep := _deep_models(files):
        return f"has its config.json too deep ({few(deep)}): put the files of one model there"
    what, remedy = other_format(folder, files)
    if what:
        return f"holds {what} and no config.json: {remedy}"
    if weights := next((name for name in files if _is_weights(name)), None):
        return f"holds weights ({weights}) and no config.json: {_SAVE_WHOLE}"
    if tokenizer := next((name for name in tokenizers if (folder / name).is_file()), None):
        return f"holds a tokenizer ({tokenizer}) and no model: save the model next to it"
    if not files:
        return "holds no model: put the files of one model there, or a code/inference.py"
    return (
        f"has no config.json, nor has a folder in it (it holds {few(files)}): put the files of one model there, or a "
        "code/inference.py"
    )


def _several(names: list[str]) -> str:
    if all(_CHECKPOINT.fullmatch(name) for name in names):
        names = sorted(names, key=lambda name: int(name.removeprefix("checkpoint-")))
        return f"holds checkpoints of a training ({few(names)}): put the files of one of them there"
    return f"holds several models ({few(names)}): put one of them there"


def is_embedder(home: Path) -> bool:
    """Whether sentence-transformers saved the model, so that it computes embeddings."""
    return (home / _EMBEDDER).is_file()


def adapter_fault(home: Path) -> str:
    """The error if a complete model has an adapter next to it, which would not be used: a sentence after the folder's
    name; empty if there is no adapter.
    """
    if not (home / _ADAPTER).is_file():
        return ""
    what = _adapter(home / _ADAPTER)
    return f"holds a model and {what}, which would not be used: {_MERGE}, or remove {_ADAPTER} if that is done"


def _adapter(file: Path) -> str:
    """`a PEFT adapter (LORA) of bert-base-uncased`."""
    config = _json(file)
    kind, base = config.get("peft_type"), config.get("base_model_name_or_path")
    return f"a PEFT adapter{f' ({kind})' if kind else ''}{f' of {base}' if base else ''}"


def _diffusers(file: Path) -> str:
    name = _json(file).get("_class_name")
    return f"a diffusers pipeline{f' ({name})' if isinstance(name, str) else ''}"


_MERGE = "merge it into its model (merge_and_unload() of peft, then save_pretrained), or " + HANDLER
_MARKERS: Mapping[str, Callable[[Path], str]] = {
    _ADAPTER: lambda file: f"holds {_adapter(file)} and not that model: {_MERGE}",
    _EMBEDDER: lambda file: f"holds a sentence-transformers model, which makes embeddings: {HANDLER}",
    "model_index.json": lambda file: f"holds {_diffusers(file)}: {HANDLER}",
}
"""File → what a folder with this file is, whatever else is in it."""


def _file_names(folder: Path) -> tuple[str, ...]:
    """Names below the folder, shallow ones first, without hidden files and folders called `code`."""
    names = islice(_walk(folder), _MOST_FILES)
    return tuple(sorted(names, key=lambda name: (name.count("/"), name)))


def _walk(folder: Path) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "code")
        paths = (Path(root, name) for name in sorted(files) if not name.startswith("."))
        yield from (path.relative_to(folder).as_posix() for path in paths)


def _deep_models(files: tuple[str, ...]) -> list[str]:
    """Folders more than one level down with a config.json and a file that may be its weights."""
    with_weights = dict.fromkeys(str(PurePosixPath(name).parent) for name in files if _is_weights(name))
    return [place for place in with_weights if f"{place}/config.json" in files]


def _is_weights(name: str) -> bool:
    return any(fnmatch(PurePosixPath(name).name, pattern) for pattern in _WEIGHTS)


def _json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file has none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
