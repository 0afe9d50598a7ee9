"""Which modules recompute their forward pass once the model is partitioned."""

from collections import Counter

import torch
from torch import nn

from berth.smdistributed.modelparallel.torch.activation import place_checkpoints, set_activation_checkpointing


class Layer(nn.Module):
    """Adds its name to `passes` whenever its forward runs."""

    def __init__(self, name: str, passes: Counter[str], *children: nn.Module) -> None:
        super().__init__()
        self.name, self.passes = name, passes
        self.inner = nn.Sequential(*(children or [nn.Linear(2, 2)]))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.passes[self.name] += 1
        return self.inner(value)


def test_checkpoint_moves_to_the_partitioned_modules_below_it() -> None:
    passes = Counter[str]()
    pair = Layer("pair", passes, Layer("a", passes), Layer("b", passes))
    model = nn.Sequential(Layer("c", passes), pair)
    set_activation_checkpointing(pair)

    def passes_of_a_step() -> dict[str, int]:
        passes.clear()
        model(torch.ones(1, 2)).sum().backward()
        return dict(passes)

    assert passes_of_a_step() == {"pair": 2, "a": 2, "b": 2, "c": 1}
    place_checkpoints(model, {"0": 0, "1.inner.0": 0, "1.inner.1": 1})
    assert passes_of_a_step() == {"pair": 1, "a": 2, "b": 2, "c": 1}
