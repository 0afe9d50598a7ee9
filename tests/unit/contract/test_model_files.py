"""What a model folder lacks; the user's machine and both images use the same check."""

import json
from pathlib import Path

import pytest

from berth.contract.model_files import file_faults
from tests.files import write_files

WHOLE = ("config.json", "model.safetensors", "tokenizer.json")
SHARDS = json.dumps(
    {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-3.safetensors"}}
)
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 438000000\n"


def write(folder: Path, names: dict[str, str] | tuple[str, ...]) -> Path:
    """Write files by their texts, or files with some text."""
    return write_files(folder, names if isinstance(names, dict) else dict.fromkeys(names, "x"))


@pytest.mark.parametrize(
    "names",
    [
        WHOLE,
        ("config.json", "pytorch_model.bin.index.json", "vocab.txt"),
        tuple(f"export/{name}" for name in WHOLE),
        tuple(f"checkpoint-500/{name}" for name in WHOLE),
        (*WHOLE, "checkpoint-500/config.json", "training_args.bin", "model.onnx"),
    ],
    ids=["complete", "index of weights", "one level down", "one checkpoint", "other files"],
)
def test_complete_model_has_no_fault(names: tuple[str, ...], tmp_path: Path) -> None:
    assert file_faults(write(tmp_path, names), "mine") == []


ADAPTER = json.dumps({"peft_type": "LORA", "base_model_name_or_path": "bert-base-uncased"})
PIPELINE = json.dumps({"_class_name": "StableDiffusionPipeline"})
DIFFUSERS = {"model_index.json": PIPELINE, "unet/config.json": "{}", "vae/config.json": "{}"}
EMBEDDER = {"modules.json": "[]", "0_Transformer/config.json": "{}", "1_Pooling/config.json": "{}"}
OTHERS: dict[str, tuple[dict[str, str] | tuple[str, ...], list[str]]] = {
    "empty": ((), ["holds no model", "code/inference.py"]),
    "unknown files": (("notes.md", "a/b.csv"), ["no config.json", "notes.md, a/b.csv", "code/inference.py"]),
    "adapter": (
        {"adapter_config.json": ADAPTER, "adapter_model.safetensors": "x", "tokenizer.json": "{}"},
        ["a PEFT adapter (LORA) of bert-base-uncased", "merge_and_unload()", "code/inference.py"],
    ),
    "damaged adapter": ({"adapter_config.json": "oops"}, ["holds a PEFT adapter and not that model"]),
    "adapter in a checkpoint": ({"checkpoint-5/adapter_config.json": ADAPTER}, ["a PEFT adapter (LORA)"]),
    "embedder": (EMBEDDER, ["a sentence-transformers model", "code/inference.py"]),
    "diffusers": (DIFFUSERS, ["a diffusers pipeline (StableDiffusionPipeline)", "code/inference.py"]),
    "GGUF": (
        ("model-q4.gguf", "README.md"),
        ["a GGUF model, which llama.cpp reads (model-q4.gguf)", "code/inference.py"],
    ),
    "scikit-learn": (("model.joblib",), ["a joblib file, such as scikit-learn's (model.joblib)", "code/inference.py"]),
    "a pickle": (("model.pkl",), ["a pickle", "(model.pkl)"]),
    "XGBoost": (("xgboost-model",), ["an XGBoost model (xgboost-model)"]),
    "TensorFlow": (("export/1/saved_model.pb",), ["a TensorFlow SavedModel (export/1/saved_model.pb)"]),
    "ONNX": (("onnx/model.onnx",), ["an ONNX model (onnx/model.onnx) and no config.json"]),
    "TorchScript": (("model.pt",), ["a PyTorch file (model.pt)", "save_pretrained"]),
    "DeepSpeed": (("global_step5/mp_rank_00_model_states.pt",), ["a DeepSpeed checkpoint", "zero_to_fp32.py"]),
    "no config": (("model.safetensors", "vocab.txt"), ["holds weights (model.safetensors) and no config.json"]),
    "a tokenizer": (("tokenizer.json", "tokenizer_config.json"), ["a tokenizer (tokenizer.json) and no model"]),
    "an archive": (("model.tar.gz",), ["an archive (model.tar.gz) and no config.json: unpack it there"]),
    "two models": (("a/config.json", "b/config.json"), ["holds several models (a, b): put one of them there"]),
    "checkpoints": (
        ("checkpoint-1000/config.json", "checkpoint-500/config.json"),
        ["checkpoints of a training (checkpoint-500, checkpoint-1000)"],
    ),
    "too deep": (tuple(f"a/b/{name}" for name in WHOLE), ["its config.json too deep (a/b)"]),
    "TensorFlow weights": (
        ("config.json", "tf_model.h5", "vocab.txt"),
        ["no weights (", "(tf_model.h5)", "from_tf"],
    ),
    "ONNX weights": (("config.json", "model.onnx", "vocab.txt"), ["no weights (", "an ONNX model (model.onnx)"]),
    "no weights": (("config.json", "tokenizer.json"), ["no weights (`model.safetensors` or `pytorch_model.bin`)"]),
    "no weights one level down": (("a/config.json", "a/vocab.txt"), ["mine/a has no weights"]),
    "no tokenizer": (("config.json", "model.safetensors"), ["no tokenizer (`tokenizer.json` or `vocab.txt`)"]),
    "missing shards": (
        {"config.json": "{}", "model.safetensors.index.json": SHARDS, "model-1.safetensors": "x", "vocab.txt": "a"},
        ["lacks model-2.safetensors and 1 more, which model.safetensors.index.json names"],
    ),
    "only hidden files and code": ((".cache/model.onnx", "code/model.pkl"), ["holds no model"]),
    "Git LFS": (
        {"config.json": "{}", "model.safetensors": LFS, "vocab.txt": "a"},
        ["mine/model.safetensors is a pointer of Git LFS", "git lfs pull"],
    ),
}


@pytest.mark.parametrize(("names", "facts"), OTHERS.values(), ids=OTHERS.keys())
def test_fault_of_incomplete_model(names: dict[str, str] | tuple[str, ...], facts: list[str], tmp_path: Path) -> None:
    (fault,) = file_faults(write(tmp_path, names), "mine")
    assert fault.startswith("mine")
    assert not [fact for fact in facts if fact not in fault], fault
    assert str(tmp_path) not in fault


def test_empty_weights_are_missing_and_tokenizer_is_optional(tmp_path: Path) -> None:
    write(tmp_path, WHOLE[:2])
    assert file_faults(tmp_path, "mine", tokenizer=False) == []
    (tmp_path / "model.safetensors").write_text("")
    (fault,) = file_faults(tmp_path, "mine", tokenizer=False)
    assert "no weights" in fault


def test_fault_of_missing_folder(tmp_path: Path) -> None:
    assert file_faults(tmp_path / "x", "mine") == ["mine does not exist: mount or unpack the model there"]
