"""Packing of objects, payloads, and tensors of other ranks, in one process."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from berth.smdistributed.modelparallel.torch import stand_in, wire
from berth.smdistributed.modelparallel.torch.gradients import buckets
from berth.smdistributed.modelparallel.torch.messages import Meta, meta_of
from berth.smdistributed.modelparallel.torch.remote import (
    Departure,
    GradientHolder,
    Handle,
    RemoteTensor,
    arrive,
    pack,
    unpack,
)
from berth.smdistributed.modelparallel.torch.seeds import mixed, seeded

CPU = torch.device("cpu")


def test_pack_extracts_tensors_of_any_object() -> None:
    one, other = torch.ones(2), torch.zeros(3)
    packed, tensors = pack({"a": [one, (other, one)], "b": SimpleNamespace(c=other), "d": 1})
    assert len(tensors) == 2, "each tensor must be packed once"
    received = unpack(packed, [each + 1 for each in tensors])
    assert received["a"][0] is received["a"][1][1]
    assert torch.equal(received["b"].c, torch.ones(3))
    with pytest.raises(TypeError, match="It can't be sent to another rank"):
        pack(threading.Lock())


def test_modules_are_packed_by_name() -> None:
    sent, received = nn.Linear(2, 2), nn.Linear(2, 2)
    packed, tensors = pack([sent, sent.weight], {id(sent): "layer", id(sent.weight): "layer.weight"})
    assert not tensors
    assert unpack(packed, [], {"layer": received, "layer.weight": received.weight})[0] is received


TENSORS = [
    torch.randn(3, 5).t(), torch.ones((), dtype=torch.bool), torch.zeros(0, 4), torch.arange(3, dtype=torch.int64),
    None, torch.randn(7).bfloat16(),
]  # fmt: skip


def test_payload_can_contain_tensors_of_any_kind() -> None:
    metas = [Meta((2,), torch.float32) if each is None else meta_of(each) for each in TENSORS]
    received = wire.tensors_of(wire.fill(5, metas, TENSORS, CPU), 5, metas)
    for sent, after in zip(TENSORS, received, strict=True):
        assert (sent is None and after is None) or torch.equal(sent, after)  # type: ignore[arg-type]
    one, other = received[0], received[3]
    assert one is not None
    assert other is not None
    before = other._version
    one.add_(1)
    assert other._version == before, "a change of one tensor must not count for another"


def test_payload_of_another_transfer_raises() -> None:
    metas = [Meta((2,), torch.float32)]
    with pytest.raises(wire.TransferError, match="Transfer 5 arrived instead of 6"):
        wire.tensors_of(wire.fill(5, metas, [torch.ones(2)], CPU), 6, metas)
    poisoned = wire.poison(6, metas, CPU)
    assert poisoned.numel() == wire.layout(metas)[1]
    with pytest.raises(wire.Poisoned):
        wire.tensors_of(poisoned, 6, metas)


def remote(value: torch.Tensor, *, requires_grad: bool = False) -> tuple[RemoteTensor, list[Any]]:
    """A tensor of another rank, and the list of its fetches."""
    fetched: list[Any] = []

    def fetch(tensor: RemoteTensor) -> torch.Tensor:
        fetched.append(tensor)
        return arrive(value, GradientHolder()) if requires_grad else value

    handle = Handle(1, 1, meta_of(value)._replace(requires_grad=requires_grad))
    return RemoteTensor.make(handle, None, CPU, fetch), fetched


def test_remote_tensor_has_shape_before_it_is_fetched() -> None:
    tensor, fetched = remote(torch.ones(2, 3), requires_grad=True)
    assert tensor.shape == (2, 3)
    assert (tensor.size(0), tensor.dtype, tensor.device, tensor.requires_grad) == (2, torch.float32, CPU, True)
    assert isinstance(tensor, torch.Tensor)
    assert not fetched
    assert torch.cat([tensor, tensor]).sum() == 12
    assert nn.Linear(3, 1)(tensor).shape == (2, 1)
    assert len(fetched) == 1


def test_remote_tensor_notices_changes_in_place() -> None:
    tensor, _ = remote(torch.ones(2), requires_grad=True)
    tensor.sum()
    assert not tensor.changed
    tensor += 1
    tensor[0] = 7.0
    assert tensor.tolist() == [7.0, 2.0]
    other, _ = remote(torch.ones(2))
    other.mul_(3)
    assert other.changed


def test_gradients_of_departed_tensor_are_added() -> None:
    weight, holder = torch.ones(2, requires_grad=True), GradientHolder()
    leaving = weight * 3
    departure = Departure.apply(leaving, holder)  # type: ignore[no-untyped-call]
    leaving.add_(1).mul_(100)
    holder.add(torch.ones(2))
    holder.add(torch.ones(2))
    torch.autograd.backward([departure], [torch.zeros(())])
    assert weight.grad is not None
    assert weight.grad.tolist() == [6.0, 6.0], "a later change of the tensor must not matter"


def test_runs_group_neighbours_of_one_owner() -> None:
    assert stand_in.runs(list("abcde"), [0, 1, 1, 2, 1]) == [(("a",), 0), (("b", "c"), 1), (("d",), 2), (("e",), 1)]


def test_buckets_separate_types() -> None:
    tensors = [torch.zeros(4), torch.zeros(4), torch.zeros(4).double(), torch.zeros(100), torch.zeros(1)]
    assert [len(each) for each in buckets(tensors, 32)] == [2, 1, 1, 1]


def test_seeded_is_reproducible_and_restores_the_state() -> None:
    assert mixed(1, "a") == mixed(1, "a") != mixed("a", 1)
    before = torch.get_rng_state()
    with seeded(3):
        one = torch.rand(2)
    with seeded(3):
        assert torch.equal(one, torch.rand(2))
    assert torch.equal(before, torch.get_rng_state())
