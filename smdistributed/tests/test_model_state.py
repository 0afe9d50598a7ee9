"""State dicts of a model whose parts are on several ranks, without processes."""

from typing import Any

import pytest
import torch
from torch import nn

from berth.smdistributed.modelparallel.torch import model_state
from berth.smdistributed.modelparallel.torch.gathering import with_tensors, without_tensors
from berth.smdistributed.modelparallel.torch.stand_in import is_remote_parameter, offload_parameter


class Counting(nn.Linear):
    """Has a number as extra state."""

    count = 0

    def get_extra_state(self) -> Any:
        return {"count": self.count}

    def set_extra_state(self, state: Any) -> None:
        self.count = state["count"]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.remote, self.last = Counting(3, 3), Counting(3, 3), nn.Linear(3, 3)
        self.last.weight = self.first.weight


@pytest.fixture
def module() -> Tied:
    made = Tied()
    for name, parameter in list(made.remote.named_parameters()):
        offload_parameter(parameter, f"remote.{name}, which is on partition 1")
    return made


def is_local(name: str) -> bool:
    return not name.startswith("remote.")


def test_shared_tensor_is_sent_once(module: Tied) -> None:
    entries = model_state.entries(module)
    assert list(entries) == list(Tied().state_dict())
    local = {name: each for name, each in entries.items() if is_local(name)}
    skeleton, tensors = without_tensors(local)
    assert [tuple(each.shape) for each in tensors] == [(3, 3), (3,), (3,)]
    again = with_tensors(skeleton, tensors)
    assert again.keys() == local.keys()
    assert again["first.weight"] is again["last.weight"]
    assert again["first._extra_state"] == {"count": 0}
    assert not again["first.weight"].requires_grad


def test_sparse_tensors_stay_in_their_containers() -> None:
    sparse = torch.eye(2).to_sparse()
    skeleton, tensors = without_tensors({"rows": (sparse, "text"), "weight": torch.ones(2)})
    assert len(tensors) == 1
    assert skeleton["rows"][0] is sparse


def test_load_changes_only_local_parts(module: Tied) -> None:
    source = Tied()
    source.first.count = source.remote.count = 3
    model_state.load(module, source.state_dict(), is_local, strict=True)
    assert torch.equal(module.first.weight, source.first.weight)
    assert (module.first.count, module.remote.count) == (3, 0)
    assert is_remote_parameter(module.remote.weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first.bias": torch.ones(2)}, "first.bias is (2,), not (3,)"),
        ({"remote.bias": torch.ones(2)}, "remote.bias is (2,), not (3,)"),
        ({"other": torch.ones(2)}, "unknown: other"),
        ({"remote.weight": None}, "missing: remote.weight"),
    ],
)
def test_mismatch_is_reported_also_for_remote_parts(module: Tied, changes: dict[str, Any], message: str) -> None:
    states = {**Tied().state_dict(), **changes}
    states = {name: each for name, each in states.items() if each is not None}
    with pytest.raises(RuntimeError) as raised:
        model_state.load(module, states, is_local, strict=True)
    assert message in str(raised.value)
    assert "the number of partitions that it was saved with" in str(raised.value)
