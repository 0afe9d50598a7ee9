"""Names that published scripts import: they work as described, or raise an error."""

import importlib
from typing import Any

import pytest
import torch
from torch import nn

from berth.smdistributed.modelparallel.parameters import ModelParallelParameters
from berth.smdistributed.modelparallel.torch import (
    delay_param_initialization,
    model_creation,
    optimizers,
    set_tensor_parallelism,
    tensor_parallelism,
    utils,
)
from berth.smdistributed.modelparallel.torch import nn as smp_nn
from berth.smdistributed.modelparallel.torch.nn.huggingface import gpt2
from berth.smdistributed.modelparallel.torch.state import state


def test_model_creation_uses_dtype() -> None:
    with model_creation(tensor_parallelism=False, dtype=torch.bfloat16, zero_init=True, fused_softmax=True):
        made = nn.Linear(2, 2)
    assert made.weight.dtype == torch.bfloat16
    assert nn.Linear(2, 2).weight.dtype == torch.float32
    with model_creation(), delay_param_initialization():
        assert nn.Linear(2, 2).weight.dtype == torch.float32


def test_model_creation_keeps_float32_with_option_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "parameters", ModelParallelParameters(fp16=True))
    with model_creation(dtype=torch.float16):
        assert nn.Linear(2, 2).weight.dtype == torch.float32


def test_error_restores_default_dtype() -> None:
    with pytest.raises(KeyError), model_creation(dtype=torch.float64):
        raise KeyError
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda **given: smp_nn.DistributedTransformer(num_layers=1, **given), "smp.nn.DistributedTransformer"),
        (lambda **given: tensor_parallelism(**given), "smp.tensor_parallelism"),
        (lambda **given: set_tensor_parallelism(nn.Linear(2, 2), **given), "smp.set_tensor_parallelism"),
        (lambda **given: model_creation(tensor_parallelism=True, **given).__enter__(), "smp.tensor_parallelism"),
    ],
)
def test_use_alibi_is_an_error(call: Any, name: str) -> None:
    """Published scripts give it to smp.model_creation; they would train a model without position biases."""
    with pytest.raises(TypeError, match=f"^{name} does not support use_alibi: .* leave it out or set it to false"):
        call(use_alibi=True)
    call(use_alibi=False)
    with model_creation(tensor_parallelism=False, use_alibi=True):
        nn.Linear(2, 2)


def test_fused_layer_norm_computes_like_layer_norm_in_its_own_class() -> None:
    given = torch.randn(2, 3)
    assert torch.equal(smp_nn.FusedLayerNorm(3, eps=1e-12)(given), nn.LayerNorm(3, eps=1e-12)(given))
    assert not isinstance(nn.LayerNorm(3), smp_nn.FusedLayerNorm)


@pytest.mark.parametrize(
    ("module", "name", "message"),
    [
        (optimizers, "FusedLAMB", "smp.optimizers.FusedLAMB is not supported because it needs NVIDIA's apex"),
        (smp_nn, "FlashAttentionLayer", "FlashAttentionLayer is not supported; use smp.nn.DistributedAttentionLayer"),
    ],
)
def test_import_of_unsupported_name_is_an_error(module: Any, name: str, message: str) -> None:
    with pytest.raises(ImportError, match=message):
        getattr(module, name)


@pytest.mark.parametrize("half", ["dataparallel", "modelparallel"])
def test_tensorflow_is_an_error(half: str) -> None:
    sentence = f"smdistributed.{half}.tensorflow is for TensorFlow, and this library is for PyTorch; use a TensorFlow "
    with pytest.raises(ImportError, match=f"^{sentence}image, or smdistributed.{half}.torch"):
        importlib.import_module(f"berth.smdistributed.{half}.tensorflow")


def test_other_names_do_not_exist() -> None:
    assert not hasattr(smp_nn, "nothing")
    assert not hasattr(optimizers, "nothing")


def test_state_dict_translation_returns_its_input() -> None:
    states = {"transformer.wte.weight": torch.ones(1)}
    assert gpt2.translate_state_dict_to_hf_gpt2(states, max_seq_len=8) is states
    assert gpt2.translate_hf_state_dict_to_smdistributed_gpt2(states) is states


def test_rmsg_adds_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utils, "rank", lambda: 3)
    assert utils.rmsg("here") == "[3] here"
