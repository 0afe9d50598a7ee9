"""A tokenizer like XLM-RoBERTa's, and windows of any tokenizer of transformers."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Window, make_windows


@cache
def pair_tokenizer(tokenizer: Any) -> PairTokenizer:
    """The PairTokenizer of a tokenizer of transformers; it takes a tenth of a second to make."""
    return PairTokenizer.of(tokenizer, token_types="token_type_ids" in tokenizer.model_input_names)


def windows_of(tokenizer: Any, *arguments: Any, **options: Any) -> list[Window]:
    """The windows of examples or pairs."""
    return make_windows(pair_tokenizer(tokenizer), *arguments, **options)


def sentence_piece(pieces: Iterable[str]) -> Any:
    """A tokenizer like XLM-RoBERTa's. It takes all text between two spaces for a word, which it cuts into `pieces`.

    `</s>` is in its vocabulary; `<mask>`, another special token, is not.
    """
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = [*((piece, 0.0) for piece in special), ("\u2581", -2.0), *((piece, -3.0) for piece in pieces)]
    library = Tokenizer(models.Unigram(vocabulary, 3))
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.add_special_tokens([*special, "<mask>"])
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=library, cls_token="<s>", sep_token="</s>", pad_token="<pad>")
