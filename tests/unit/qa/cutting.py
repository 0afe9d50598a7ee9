"""Cuts windows with a tokenizer of transformers, for the tests of windows and spans."""

from functools import cache
from typing import Any

from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import Window, make_windows


@cache
def pair_tokenizer(tokenizer: Any) -> PairTokenizer:
    """The PairTokenizer of a tokenizer of transformers; it takes a tenth of a second to make."""
    return PairTokenizer.of(tokenizer, token_types="token_type_ids" in tokenizer.model_input_names)


def windows_of(tokenizer: Any, *arguments: Any, **options: Any) -> list[Window]:
    """The windows of examples or pairs."""
    return make_windows(pair_tokenizer(tokenizer), *arguments, **options)
