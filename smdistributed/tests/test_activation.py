"""Which modules recompute their forward pass once the model is partitioned."""

import weakref
from collections import Counter

import pytest
import torch
from torch import nn

from berth.smdistributed.modelparallel.parameters import ModelParallelParameters
from berth.smdistributed.modelparallel.torch import activation
from berth.smdistributed.modelparallel.torch.activation import place_checkpoints, set_activation_checkpointing
from berth.smdistributed.modelparallel.torch.state import state


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


def test_checkpoint_is_recomputed_in_each_backward_pass_through_it() -> None:
    """Several passes go through a module if several ranks use its result."""
    gradients = []
    for checkpoints in (False, True):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        if checkpoints:
            set_activation_checkpointing(layers)
        result = layers(torch.ones(2, 4))
        result.sum().backward(retain_graph=True)
        result.square().sum().backward()
        gradients.append([each.grad for each in layers.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


@pytest.mark.parametrize("offloads", [True, False])
def test_offloaded_checkpoint_keeps_no_input_on_the_device(offloads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a GPU all tensors count as activations on one."""
    monkeypatch.setattr(activation, "_leaves_device", lambda value: type(value) is torch.Tensor)
    monkeypatch.setattr(state, "parameters", ModelParallelParameters(offload_activations=offloads))
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Dropout(0.5))
    inputs: list[weakref.ref[torch.Tensor]] = []
    layers[1].register_forward_pre_hook(lambda _, args: inputs.append(weakref.ref(args[0])))
    results = []
    for checkpoints in (False, True):
        if checkpoints:
            set_activation_checkpointing(layers[1])
        torch.manual_seed(1)
        layers.zero_grad()
        loss = layers(torch.ones(2, 4)).square().mean()
        kept = inputs[-1]() is not None
        loss.backward()
        results.append([loss.detach(), *(each.grad.clone() for each in layers.parameters() if each.grad is not None)])
    assert kept is not offloads
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))
