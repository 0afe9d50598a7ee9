"""The tokens and operations of a request, against what can be counted by hand."""

import pytest
import transformers

from bench.serving import model
from bench.serving.questions import Asked
from berth.local.demo import pretrained_model

pytestmark = pytest.mark.slow  # transformers takes seconds to import

LAYERS, HIDDEN, INNER = 2, 64, 128


def by_hand(tokens: int) -> int:
    """Two for a multiply and add: projections, both products of attention, the feed-forward part; then two logits."""
    layer = 4 * tokens * HIDDEN * HIDDEN + 2 * tokens * tokens * HIDDEN + 2 * tokens * HIDDEN * INNER
    return 2 * (LAYERS * layer + tokens * HIDDEN * 2)


def test_operations_of_a_bert_are_those_of_its_matrix_products() -> None:
    config = transformers.BertConfig(
        vocab_size=100,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=INNER,
        max_position_embeddings=384,
    )
    assert model.flops_by_length(config, [10, 384]) == {10: by_hand(10), 384: by_hand(384)}


def test_tokens_are_those_of_all_windows_without_padding() -> None:
    asked = [Asked("Who?", "Paul did."), Asked("Who?", "Paul did. " * 200)]
    work = model.work_of(pretrained_model(), asked)
    assert work.requests == 2
    assert work.windows == 1 + 2
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained_model())
    lengths = model.window_lengths(tokenizer, asked)
    assert lengths[0] == len(tokenizer("Who?", "Paul did.").input_ids)
    # [CLS], the question and two [SEP] take 5 of 384; the second window begins 128 tokens before the first one's end.
    assert lengths[1:] == [384, 5 + 600 - (379 - 128)]
    assert work.tokens == sum(lengths)
    assert work.tokens_per_request == sum(lengths) / 2
    assert work.flops_per_token == work.flops / work.tokens
