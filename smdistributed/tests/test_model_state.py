"""State dicts of a model of which another rank holds a part, without processes."""

from typing import Any

import pytest
import torch
from torch import nn

from berth.smdistributed.modelparallel.torch import model_state
from berth.smdistributed.modelparallel.torch.stand_in import is_remote_parameter, offload_parameter


class Counting(nn.Linear):
    """Keeps a number besides its tensors."""

    count = 0

    def get_extra_state(self) -> Any:
        return {"count": self.count}

    def set_extra_state(self, state: Any) -> None:
        self.count = state["count"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.away, self.last = Counting(3, 3), Counting(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight


@pytest.fixture
def module() -> Tied:
    made = Tied()
    for name, parameter in list(made.away.named_parameters()):
        offload_parameter(parameter, f"away.{name}, which is on partition 1")
    return made


def here(name: str) -> bool:
    return not name.startswith("away.")


def test_a_tensor_of_two_names_is_sent_once(module: Tied) -> None:
    found = model_state.entries(module)
    assert list(found) == list(Tied().state_dict())
    on_cpu = model_state.on_cpu({name: each for name, each in found.items() if here(name)})
    assert on_cpu["first.weight"] is on_cpu["last.weight"]
    assert not on_cpu["first.weight"].requires_grad


def test_only_what_is_here_is_loaded(module: Tied) -> None:
    given = Tied()
    given.first.count = given.away.count = 3
    model_state.load(module, given.state_dict(), here, strict=True)
    assert torch.equal(module.first.weight, given.first.weight)
    assert (module.first.count, module.away.count) == (3, 0)
    assert is_remote_parameter(module.away.weight)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first.bias": torch.ones(2)}, "first.bias is (2,), not (3,)"),
        ({"away.bias": torch.ones(2)}, "away.bias is (2,), not (3,)"),
        ({"other": torch.ones(2)}, "unknown: other"),
        ({"away.weight": None}, "missing: away.weight"),
    ],
)
def test_what_does_not_fit_is_said_on_every_rank(module: Tied, changes: dict[str, Any], said: str) -> None:
    given = {**Tied().state_dict(), **changes}
    given = {name: each for name, each in given.items() if each is not None}
    with pytest.raises(RuntimeError) as raised:
        model_state.load(module, given, here, strict=True)
    assert said in str(raised.value)
    assert "as many partitions as it was saved with" in str(raised.value)
