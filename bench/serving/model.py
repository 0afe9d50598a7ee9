"""What a request asks of a model: the tokens of its windows, and the floating-point operations that these take.

Wants torch and transformers, of the environment of the tests: `make setup-tests`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.serving.questions import Asked

WINDOW, STRIDE = 384, 128
"""Tokens of a window, and those that neighbours share: the defaults of both servers."""


@dataclass(frozen=True, slots=True)
class Work:
    """Of a list of requests: the windows of all, their tokens, and the operations that these take without padding."""

    requests: int
    windows: int
    tokens: int
    flops: int

    @property
    def tokens_per_request(self) -> float:
        return self.tokens / self.requests

    @property
    def flops_per_token(self) -> float:
        return self.flops / self.tokens


def work_of(folder: Path, asked: Sequence[Asked]) -> Work:
    """The work of these requests for the model in `folder`."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lengths = window_lengths(tokenizer, asked)
    config = transformers.AutoConfig.from_pretrained(folder)
    flops = flops_by_length(config, set(lengths))
    return Work(len(asked), len(lengths), sum(lengths), sum(flops[length] for length in lengths))


def window_lengths(tokenizer: Any, asked: Sequence[Asked]) -> list[int]:
    """The tokens of each window of each request, padding aside."""
    from berth.qa.tokenizer import PairTokenizer
    from berth.qa.windows import make_windows

    pairs = [(each.question, each.context) for each in asked]
    windows = make_windows(PairTokenizer.of(tokenizer, token_types=True), pairs, WINDOW, STRIDE)
    return [len(window.input_ids) for window in windows]


def flops_by_length(config: Any, lengths: Iterable[int]) -> dict[int, int]:
    """The operations of one window of each length, two for a multiply and add, counted by torch without any weights."""
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        # Eager attention, for the counter knows plain matrix products on every device.
        model = transformers.AutoModelForQuestionAnswering.from_config(config, attn_implementation="eager").eval()
        counted = {}
        for length in lengths:
            ids = torch.zeros(1, length, dtype=torch.long)
            with torch.no_grad(), FlopCounterMode(display=False) as counter:
                model(input_ids=ids)
            counted[length] = counter.get_total_flops()
    return counted
