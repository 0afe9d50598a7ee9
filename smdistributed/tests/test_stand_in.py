"""Parameters of other ranks: which attributes they have, and the error for everything else."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from berth.smdistributed.modelparallel.torch.stand_in import is_remote_parameter, offload_parameter


@pytest.fixture
def module() -> nn.Linear:
    made = nn.Linear(3, 4)
    offload_parameter(made.weight, "head.weight, which is on partition 1")
    return made


READS: dict[str, Callable[[nn.Linear], Any]] = {
    "detach": lambda module: module.weight.detach(),
    "data": lambda module: module.weight.data,
    "new data": lambda module: setattr(module.weight, "data", torch.ones(4, 3)),
    "clone": lambda module: module.weight.clone(),
    "item": lambda module: module.weight[0, 0].item(),
    "numpy": lambda module: module.weight.numpy(),
    "norm": lambda module: torch.linalg.vector_norm(module.weight),
    "in a list": lambda module: torch.cat([module.bias.reshape(4, 1), module.weight], dim=1),
    "on the left": lambda module: 1 + module.weight,
    "sum": lambda module: module.weight.sum(),
    "in place": lambda module: nn.init.normal_(module.weight),
    "move": lambda module: module.weight.cpu(),
    "type": lambda module: module.half(),
    "state dict": lambda module: module.state_dict(),
    "deepcopy": lambda module: copy.deepcopy(module),
    "save": lambda module: torch.save(module, io.BytesIO()),
    "load": lambda module: module.load_state_dict(nn.Linear(3, 4).state_dict()),
    "forward": lambda module: module(torch.ones(1, 3)),
}


@pytest.mark.parametrize("name", READS)
def test_reading_values_is_an_error_that_names_the_parameter(module: nn.Linear, name: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        READS[name](module)
    message = "The values of head.weight, which is on partition 1, are not on this rank"
    assert message in str(raised.value)
    assert "call state_dict() or local_parameters() of smp.DistributedModel" in str(raised.value)


def test_shape_and_type_can_be_read(module: nn.Linear) -> None:
    assert is_remote_parameter(module.weight)
    assert sum(each.numel() for each in module.parameters()) == 16
    assert (module.weight.shape, module.weight.dtype, module.weight.grad) == ((4, 3), torch.float32, None)
    assert repr(module.weight) == "head.weight, which is on partition 1 (4, 3)"
    optimizer = torch.optim.Adam(module.parameters())
    module.bias.grad = torch.ones(4)
    optimizer.step()
    optimizer.zero_grad()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    assert list(optimizer.state_dict()["state"]) == [1]
