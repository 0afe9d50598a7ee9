"""smp.delay_param_initialization: the same values, and memory only for what a rank keeps."""

import copy
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rank_jobs
import torch
from torch import nn
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from berth.smdistributed.modelparallel.torch.delayed import (
    Delayed,
    computed,
    delayed_values,
    settle_buffers,
    settle_parameter,
)

SIZES: dict[str, Any] = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


class Odd(nn.Module):
    """Parameters that are created and written in unusual ways."""

    def __init__(self) -> None:
        super().__init__()
        self.truncated = nn.Parameter(torch.empty(80, 80))
        nn.init.trunc_normal_(self.truncated, std=0.02)
        with torch.no_grad():
            self.truncated[3:5].mul_(2)
            self.truncated.t()[1].zero_()
        self.drawn = nn.Parameter(torch.randn(80, 80))
        self.words = nn.Embedding(200, 64, padding_idx=3)
        self.square = nn.Linear(96, 96)
        nn.init.orthogonal_(self.square.weight)
        self.copied = nn.Linear(96, 96)
        self.copied.load_state_dict(self.square.state_dict())
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(128, 64))
        self.recurrent = nn.LSTM(64, 64)
        self.register_buffer("table", torch.empty(80, 80).fill_(2.0))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "odd": Odd,
    "bert": lambda: BertForQuestionAnswering(BertConfig(**SIZES, vocab_size=300)),
    "vit": lambda: ViTForImageClassification(ViTConfig(**SIZES)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=96, n_layer=2, n_head=4, vocab_size=300)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=300)),
}


def made(kind: str, *, delayed: bool) -> tuple[nn.Module, torch.Tensor]:
    """A model and the next random numbers."""
    torch.manual_seed(3)
    if not delayed:
        return MODELS[kind](), torch.rand(3)
    with delayed_values():
        model = MODELS[kind]()
    return model, torch.rand(3)


@pytest.mark.parametrize("kind", MODELS)
def test_delayed_values_are_equal_to_the_last_bit(kind: str) -> None:
    """Also those of a copy. The parameters stay the same objects, and the random generator moves on as it does else."""
    (plain, numbers), (model, same_numbers) = made(kind, delayed=False), made(kind, delayed=True)
    copied = copy.deepcopy(model)
    delayed = [each for each in model.parameters() if isinstance(each, Delayed)]
    parameters = list(model.parameters())
    assert len(delayed) >= 10
    assert {each: computed(value).shape for each, value in model.state_dict().items()} == {
        each: value.shape for each, value in plain.state_dict().items()
    }
    for each in (model, copied):
        for parameter in each.parameters():
            settle_parameter(parameter)
        settle_buffers(each)
        states = each.state_dict()
        assert all(torch.equal(value, states[name]) for name, value in plain.state_dict().items())
    assert all(one is other for one, other in zip(parameters, model.parameters(), strict=True))
    assert {type(each) for each in parameters} == {nn.Parameter}
    assert torch.equal(numbers, same_numbers)


def test_delayed_values_can_be_read_loaded_and_saved() -> None:
    plain, model = made("bert", delayed=False)[0], made("bert", delayed=True)[0]
    ids = torch.arange(6).view(2, 3)
    assert torch.equal(plain.eval()(ids).start_logits, model.eval()(ids).start_logits)
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    states = torch.load(saved, weights_only=True)
    assert all(torch.equal(value, states[name]) for name, value in plain.state_dict().items())
    model.load_state_dict({name: value + 1 for name, value in plain.state_dict().items()})
    assert torch.equal(model.qa_outputs.weight, plain.qa_outputs.weight + 1)
    words = model.bert.embeddings.word_embeddings.weight
    assert isinstance(words, Delayed)
    assert torch.equal(words.values(), plain.bert.embeddings.word_embeddings.weight + 1)


RANKS = """
import delayed_ranks
result({kind: delayed_ranks.compared(options) for kind, options in {
    "tensor": {"tensor_parallel_degree": 2},
    "pipeline": {"pipeline_parallel_degree": 2},
    "sharded": {"sharded_data_parallel_degree": 2},
}.items()})
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The results of two ranks, which use different seeds."""
    memory = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    folder: Path = tmp_path_factory.mktemp("ranks")
    return rank_jobs.run(RANKS, 2, folder, imports=["pipeline_models"], **memory)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensor", "pipeline", "sharded"])
def test_rank_needs_memory_for_its_part_only(ranks: list[dict[str, Any]], kind: str) -> None:
    """Creating and splitting a BERT of 241 MB takes a rank's part, the largest layer and at most 30 MB."""
    for rank in ranks:
        peak, limit, peak_without, whole, _ = rank[kind]
        assert peak < limit < peak_without
        assert peak_without > 0.9 * whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensor", "pipeline", "sharded"])
def test_ranks_begin_with_the_model_that_they_would_have_without_it(ranks: list[dict[str, Any]], kind: str) -> None:
    assert [rank[kind][-1] for rank in ranks] == [True, True]
