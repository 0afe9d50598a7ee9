"""Compares the PyTorch engine with direct calls of the model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, RobertaConfig, RobertaForQuestionAnswering

from berth.runtime.engines.engine import EngineInfo, WindowTokens
from berth.runtime.engines.model_folder import ModelFiles, ModelFilesError, find
from berth.runtime.engines.pytorch import PyTorchEngine, load
from tests.unit.small_models import tiny_tokenizer


def row(length: int, vocabulary: int, types: bool = True) -> WindowTokens:
    """A row of random tokens; the first half belongs to the question."""
    ids = np.random.default_rng(length).integers(5, vocabulary, size=length, dtype=np.int32)
    return WindowTokens(ids, (np.arange(length) >= length // 2).astype(np.int32) if types else None)


def files(folder: Path) -> ModelFiles:
    return ModelFiles(folder, "model.safetensors", "tokenizer.json", None)


def test_logits_do_not_depend_on_the_batch(tiny_model: Path) -> None:
    rows = [row(length, 100) for length in (5, 128, 40, 41, 127, 39, 2, 120, 40, 40, 40)]
    logits = PyTorchEngine(files(tiny_model), 1).logits(rows)
    model = AutoModelForQuestionAnswering.from_pretrained(tiny_model).eval()
    for one, batched in zip(rows, logits, strict=True):
        assert one.token_type_ids is not None
        assert {batched.start.dtype, batched.end.dtype} == {np.dtype(np.float32)}
        with torch.no_grad():
            alone = model(
                input_ids=torch.tensor(one.input_ids[None].astype(np.int64)),
                token_type_ids=torch.tensor(one.token_type_ids[None].astype(np.int64)),
            )
        np.testing.assert_allclose(batched.start, alone.start_logits[0], atol=1e-5)
        np.testing.assert_allclose(batched.end, alone.end_logits[0], atol=1e-5)


def test_longest_window_of_roberta(tmp_path: Path) -> None:
    """RoBERTa's positions start after its padding id, so 64 of 66 positions are usable."""
    config = RobertaConfig(
        vocab_size=200,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=66,
        type_vocab_size=1,
    )
    RobertaForQuestionAnswering(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    engine = PyTorchEngine(files(tmp_path), 1)
    assert engine.info.max_length == 64
    (logits,) = engine.logits([row(64, 100, types=False)])
    assert len(logits.start) == 64
    with pytest.raises((IndexError, RuntimeError)):
        engine.logits([row(65, 100, types=False)])


def test_engine_info(tiny_model: Path) -> None:
    engine = PyTorchEngine(files(tiny_model), 1)
    described = f"PyTorch {torch.__version__}, BertForQuestionAnswering, fp32 on {engine.device}"
    assert engine.info == EngineInfo(described, "fp32", 128, slots=1, rows=4)


@pytest.mark.parametrize(("precision", "max_difference"), [("bf16", 0.1), ("fp16", 0.02)])
def test_half_precision_is_close_to_fp32(tiny_model: Path, precision: str, max_difference: float) -> None:
    rows = [row(length, 100) for length in (30, 31, 32)]
    half, full = PyTorchEngine(files(tiny_model), 1, precision), PyTorchEngine(files(tiny_model), 1)
    assert half.info.precision == precision
    for one, other in zip(half.logits(rows), full.logits(rows), strict=True):
        assert one.start.dtype == np.float32
        assert 0 < np.abs(one.start - other.start).max() < max_difference


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"architectures": None}, ["no head for question answering (qa_outputs.bias, qa_outputs.weight)", "run_qa"]),
        ({"architectures": None, "model_type": "llama"}, ["don't fit its config, which is of a LlamaForQ"]),
        ({"architectures": None, "num_hidden_layers": 3}, ["lack bert.encoder.layer.2."]),
        (
            {"architectures": None, "model_type": "foobar", "auto_map": {}},
            ["models of type foobar", "(auto_map) is not run"],
        ),
        ({"model_type": "vilt"}, ["this is a BertModel"]),
        (
            {"architectures": ["ViltForQuestionAnswering"], "model_type": "vilt"},
            ["no question answering for models of type vilt"],
        ),
    ],
)
def test_load_rejects_other_models(tiny_model: Path, tmp_path: Path, change: dict[str, Any], facts: list[str]) -> None:
    """Only the image can check this, because it needs transformers."""
    AutoModelForQuestionAnswering.from_pretrained(tiny_model).bert.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelFilesError) as refused:
        load(find(tmp_path))
    assert not [fact for fact in facts if fact not in str(refused.value)], refused.value
