"""Errors of SMDDP."""

import pytest
import torch
import torch.distributed

from berth.smdistributed.dataparallel.torch import distributed as dist
from berth.smdistributed.dataparallel.torch.parallel import DistributedDataParallel

FIRST = "call smdistributed.dataparallel.torch.distributed.init_process_group() first."


@pytest.mark.parametrize(
    "name", ["get_world_size", "get_rank", "get_local_rank", "get_local_size", "barrier", "all_reduce", "broadcast"]
)
def test_function_before_init_process_group_is_an_error(name: str) -> None:
    given = [torch.zeros(1)] if name in ("all_reduce", "broadcast") else []
    with pytest.raises(RuntimeError) as error:
        getattr(dist, name)(*given)
    assert str(error.value) == f"{name} was called before init_process_group; {FIRST}"


def test_model_before_init_process_group_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="DistributedDataParallel was called before init_process_group"):
        DistributedDataParallel(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(("device", "expected"), [("meta", {"device_ids": [3], "output_device": 3}), ("cpu", {})])
def test_device_ids_are_passed_only_for_models_off_the_cpu(
    device: str, expected: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch rejects device_ids for a model on the CPU. The meta device represents a GPU here."""
    passed: dict[str, object] = {}
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.nn.parallel.DistributedDataParallel, "__init__", lambda *_, **options: passed.update(options)
    )
    DistributedDataParallel(torch.nn.Linear(1, 1, device=device), device_ids=[3], output_device=3)
    assert {name: value for name, value in passed.items() if "device" in name} == expected


def test_group_of_some_ranks_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"one group of ranks, group\.WORLD; leave out group and process_group\.$"):
        dist.check_group([0, 1])
    for one in (None, dist.group.WORLD):
        dist.check_group(one)
    with pytest.raises(ValueError, match="one group of ranks"):
        dist.init_process_group(group=[0])


def test_unknown_reduction_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^op is 'sum'; use one of smdistributed\.dataparallel\.torch"):
        dist._torch_op("sum")


def test_missing_function_names_the_one_of_torch() -> None:
    with pytest.raises(AttributeError) as error:
        _ = dist.all_gather_object
    assert str(error.value) == (
        "SMDDP's version 1 has no all_gather_object; use torch.distributed.all_gather_object, with the backend smddp "
        "of smdistributed.dataparallel.torch.torch_smddp."
    )
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        _ = dist.nonsense
