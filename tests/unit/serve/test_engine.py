"""The PyTorch engine against the model called directly."""

from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForQuestionAnswering, RobertaConfig, RobertaForQuestionAnswering

from berth.qa.windows import Window
from berth.serve.engines.pytorch import PyTorchEngine
from berth.serve.models import ModelFiles


def window(length: int, vocabulary: int, types: bool = True) -> Window:
    """A window of random tokens, the first half of them the question's."""
    ids = np.random.default_rng(length).integers(5, vocabulary, size=length, dtype=np.int32)
    half = length // 2
    token_types = (np.arange(length) >= half).astype(np.int32) if types else None
    empty = np.zeros((length, 2), np.int32)
    return Window(0, ids, token_types, empty, empty, context_start=half, context_end=length)


def files(folder: Path) -> ModelFiles:
    return ModelFiles(folder, "model.safetensors", "tokenizer.json", None)


def test_logits_do_not_depend_on_the_batch(tiny_model: Path) -> None:
    lengths = [5, 128, 40, 41, 127, 39, 2, 120, 40, 40, 40]
    windows = [window(length, 100) for length in lengths]
    start, end = PyTorchEngine(files(tiny_model)).logits(windows)
    assert [len(row) for row in start] == [len(row) for row in end] == lengths
    assert {row.dtype for row in start + end} == {np.dtype(np.float32)}
    model = AutoModelForQuestionAnswering.from_pretrained(tiny_model).eval()
    for one, got_start, got_end in zip(windows, start, end, strict=True):
        assert one.token_type_ids is not None
        with torch.no_grad():
            alone = model(
                input_ids=torch.tensor(one.input_ids[None].astype(np.int64)),
                token_type_ids=torch.tensor(one.token_type_ids[None].astype(np.int64)),
            )
        np.testing.assert_allclose(got_start, alone.start_logits[0], atol=1e-5)
        np.testing.assert_allclose(got_end, alone.end_logits[0], atol=1e-5)


def test_work_that_nobody_waits_for_ends_with_the_batch(tiny_model: Path) -> None:
    engine = PyTorchEngine(files(tiny_model))
    batches = 0
    forward = engine._forward

    def counting(windows: Sequence[Window]) -> Any:
        nonlocal batches
        batches += 1
        return forward(windows)

    engine._forward = counting  # type: ignore[method-assign]
    with pytest.raises(CancelledError):
        engine.logits([window(40, 100)] * 100, cancelled=lambda: batches == 2)
    assert batches == 2


def test_nothing_in_nothing_out(tiny_model: Path) -> None:
    assert PyTorchEngine(files(tiny_model)).logits([]) == ([], [])


def test_the_longest_window_of_roberta(tmp_path: Path) -> None:
    """RoBERTa's positions begin behind its padding id: of 66 positions 64 can be used."""
    config = RobertaConfig(
        vocab_size=100,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=66,
        type_vocab_size=1,
    )
    RobertaForQuestionAnswering(config).save_pretrained(tmp_path)
    engine = PyTorchEngine(files(tmp_path))
    assert engine.max_length == 64
    start, _ = engine.logits([window(64, 100, types=False)])
    assert len(start[0]) == 64
    with pytest.raises((IndexError, RuntimeError)):
        engine.logits([window(65, 100, types=False)])


def test_the_description_says_what_runs(tiny_model: Path) -> None:
    engine = PyTorchEngine(files(tiny_model))
    assert engine.description == f"PyTorch {torch.__version__}, BertForQuestionAnswering, float32 on {engine.device}"
    assert engine.max_length == 128
