"""SMDDP on two gloo ranks: scripts of version 1 and 2, compared with plain DDP and with one process."""

from pathlib import Path
from typing import Any

import pytest
import rank_jobs
import torch

STEPS = 5
NETWORK = f"""
import contextlib, io
from torch import nn

def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 2))

def batches(rank, size):
    generator = torch.Generator().manual_seed(1)
    for _ in range({STEPS}):
        batch = torch.randn(8, 6, generator=generator)
        yield batch[rank * 8 // size:(rank + 1) * 8 // size].split([4, 2], dim=1)

def train(model, rank, size):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for features, targets in batches(rank, size):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(features), targets).backward()
        optimizer.step()
    return {{name.removeprefix("module."): tensor.detach() for name, tensor in model.named_parameters()}}

stderr = io.StringIO()
results = {{"alone": train(network(), 0, 1)}}
"""
UNDER_MPIRUN = """
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
    os.environ[f"OMPI_COMM_WORLD_{name.replace('WORLD_SIZE', 'SIZE')}"] = os.environ.pop(name)
"""
VERSION_1 = f"""
{UNDER_MPIRUN}
import smdistributed.dataparallel.torch.distributed as dist
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP

results["before"] = (dist.is_available(), dist.is_initialized())
with contextlib.redirect_stderr(stderr):
    dist.init_process_group(backend="nccl", init_method="env://")
    dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
results["where"] = (dist.is_initialized(), rank, size, dist.get_local_rank(), dist.get_local_size())
results["stderr"] = stderr.getvalue()

model = DDP(network(), broadcast_buffers=False)
with model.no_sync():
    model(torch.ones(2, 4) * (rank + 1)).square().sum().backward()
results["apart"] = model.module[0].weight.grad.clone()
results["weights"] = train(DDP(network(), broadcast_buffers=False), rank, size)
results["default"] = train(DDP(network(), None, None, True, dist.group.WORLD, 1), rank, size)
results["devices"] = train(DDP(network(), device_ids=[dist.get_local_rank()], output_device=0), rank, size)
plain = torch.distributed.new_group(backend="gloo")
results["plain"] = train(nn.parallel.DistributedDataParallel(network(), process_group=plain), rank, size)

def mine(kind=torch.float):
    return torch.tensor([1, 2], dtype=kind) * (rank + 1)

def reduced(op, kind=torch.float, **more):
    tensor = mine(kind)
    work = dist.all_reduce(tensor, op=op, **more)
    return tensor if work is None else (work.wait(), work.wait(), tensor)[2]

results["sum"] = reduced(dist.ReduceOp.SUM)
results["none"] = reduced(None)
results["average"] = reduced(dist.ReduceOp.AVERAGE)
results["whole average"] = reduced(dist.ReduceOp.AVERAGE, torch.long)
results["average later"] = reduced(dist.ReduceOp.AVERAGE, async_op=True)
results["sum later"] = reduced(dist.ReduceOp.SUM, async_op=True)
results["min"] = reduced(dist.ReduceOp.MIN)
results["max"] = reduced(dist.ReduceOp.MAX)
results["torch's"] = reduced(torch.distributed.ReduceOp.MAX)
for name, op in (("reduce", dist.ReduceOp.SUM), ("reduce average", dist.ReduceOp.AVERAGE)):
    results[name] = mine()
    dist.reduce(results[name], 1, op)
results["broadcast"] = mine()
dist.broadcast(results["broadcast"], src=1)
results["all_gather"] = [torch.zeros(2), torch.zeros(2)]
dist.all_gather(results["all_gather"], mine())
results["all_to_all"] = torch.zeros(2)
dist.all_to_all_single(results["all_to_all"], mine())
# Rank 0 sends one element to each rank; rank 1 sends both of its elements to itself.
results["all_to_all split"] = torch.zeros(3 if rank else 1)
output_sizes, input_sizes = ([1, 2], [0, 2]) if rank else ([1, 0], [1, 1])
dist.all_to_all_single(results["all_to_all split"], mine(), output_sizes, input_sizes)
results["barrier"] = (dist.barrier(), dist.barrier(async_op=True).wait())
result(results)
"""
VERSION_2 = """
import smdistributed.dataparallel.torch.torch_smddp
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

with contextlib.redirect_stderr(stderr):
    dist.init_process_group(backend="smddp")
    half = dist.new_group([1])
rank, size = dist.get_rank(), dist.get_world_size()
results["stderr"], results["backends"] = stderr.getvalue(), (dist.get_backend(), rank == 1 and dist.get_backend(half))
results["weights"] = train(DDP(network()), rank, size)
results["plain"] = train(DDP(network(), process_group=dist.new_group(backend="gloo")), rank, size)
sharded = network()
mesh = init_device_mesh("cpu", (2,))
for part in (sharded[0], sharded):
    fully_shard(part, mesh=mesh)
results["fsdp"] = {name: tensor.full_tensor() for name, tensor in train(sharded, rank, size).items()}
results["shares"] = sharded[0].weight.to_local().shape

mine = torch.tensor([1.0, 2.0]) * (rank + 1)
results["all_reduce"] = mine.clone()
dist.all_reduce(results["all_reduce"])
results["all_gather"] = [torch.zeros(2), torch.zeros(2)]
dist.all_gather(results["all_gather"], mine)
results["all_gather_into"] = torch.zeros(4)
dist.all_gather_into_tensor(results["all_gather_into"], mine)
results["reduce_scatter"] = torch.zeros(1)
dist.reduce_scatter(results["reduce_scatter"], list(mine.split(1)))
results["reduce_scatter_tensor"] = torch.zeros(1)
dist.reduce_scatter_tensor(results["reduce_scatter_tensor"], mine)
results["objects"] = [None, None]
dist.all_gather_object(results["objects"], {"rank": rank})
dist.barrier()
result(results)
dist.destroy_process_group()
"""
LINE = "smddp: open implementation, not AWS's library: 2 ranks over gloo\n"


def started(body: str, folder: Path) -> list[dict[str, Any]]:
    return rank_jobs.run(body, 2, folder, opening=rank_jobs.PLAIN + NETWORK)


@pytest.fixture(scope="module")
def version_1(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return started(VERSION_1, tmp_path_factory.mktemp("v1"))


@pytest.fixture(scope="module")
def version_2(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return started(VERSION_2, tmp_path_factory.mktemp("v2"))


def equal(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_version_1_has_ranks_and_logs_one_line(version_1: list[dict[str, Any]]) -> None:
    assert [each["before"] for each in version_1] == [(True, False)] * 2
    assert [each["where"] for each in version_1] == [(True, 0, 2, 0, 2), (True, 1, 2, 1, 2)]
    assert [each["stderr"] for each in version_1] == [LINE, ""]


@pytest.mark.slow
def test_version_1_trains_like_plain_ddp(version_1: list[dict[str, Any]]) -> None:
    for each in version_1:
        assert equal(each["weights"], each["plain"])
        assert equal(each["default"], each["plain"])
        assert equal(each["devices"], each["plain"]), "device_ids must be ignored for a model on the CPU"
        torch.testing.assert_close(each["weights"], each["alone"], rtol=0, atol=2e-6)
        assert equal(each["weights"], version_1[0]["weights"]), "the ranks' weights differ"
    assert not torch.equal(version_1[0]["apart"], version_1[1]["apart"]), "no_sync must not average gradients"


@pytest.mark.slow
def test_collectives_of_version_1(version_1: list[dict[str, Any]]) -> None:
    expected = {
        "sum": [3, 6],
        "none": [3, 6],
        "average": [1.5, 3],
        "whole average": [1, 3],
        "average later": [1.5, 3],
        "sum later": [3, 6],
        "min": [1, 2],
        "max": [2, 4],
        "torch's": [2, 4],
        "broadcast": [2, 4],
    }
    for each in version_1:
        assert {name: each[name].tolist() for name in expected} == expected
        assert [tensor.tolist() for tensor in each["all_gather"]] == [[1, 2], [2, 4]]
        assert each["barrier"] == (None, True)
    first, second = version_1
    assert (second["reduce"].tolist(), second["reduce average"].tolist()) == ([3, 6], [1.5, 3])
    assert (first["all_to_all"].tolist(), second["all_to_all"].tolist()) == ([1, 2], [2, 4])
    assert (first["all_to_all split"].tolist(), second["all_to_all split"].tolist()) == ([1], [2, 2, 4])


@pytest.mark.slow
def test_version_2_is_a_backend_and_logs_one_line(version_2: list[dict[str, Any]]) -> None:
    assert [each["backends"] for each in version_2] == [("smddp", False), ("smddp", "smddp")]
    assert [each["stderr"] for each in version_2] == [LINE, ""]


@pytest.mark.slow
def test_version_2_trains_like_plain_ddp(version_2: list[dict[str, Any]]) -> None:
    for each in version_2:
        assert equal(each["weights"], each["plain"])
        assert equal(each["weights"], version_2[0]["weights"])
        torch.testing.assert_close(each["weights"], each["alone"], rtol=0, atol=2e-6)


@pytest.mark.slow
def test_fsdp_over_smddp_trains_like_plain_ddp(version_2: list[dict[str, Any]]) -> None:
    for each in version_2:
        assert each["shares"] == (4, 4), "each rank must hold half of 8 × 4"
        torch.testing.assert_close(each["fsdp"], each["plain"], rtol=0, atol=2e-6)


@pytest.mark.slow
def test_collectives_of_version_2(version_2: list[dict[str, Any]]) -> None:
    for rank, each in enumerate(version_2):
        assert each["all_reduce"].tolist() == [3, 6]
        assert [tensor.tolist() for tensor in each["all_gather"]] == [[1, 2], [2, 4]]
        assert each["all_gather_into"].tolist() == [1, 2, 2, 4]
        assert each["reduce_scatter"].tolist() == each["reduce_scatter_tensor"].tolist() == [3 * (rank + 1)]
        assert each["objects"] == [{"rank": 0}, {"rank": 1}]


@pytest.mark.slow
def test_process_without_launcher_is_a_job_of_one_rank(tmp_path: Path) -> None:
    body = """
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
    os.environ.pop(name)
import smdistributed.dataparallel.torch.distributed as dist
available = dist.is_available()
dist.init_process_group()
tensor = torch.ones(1)
dist.all_reduce(tensor)
result((available, dist.get_rank(), dist.get_world_size(), dist.get_local_rank(), tensor.item()))
"""
    assert rank_jobs.run(body, 1, tmp_path, opening=rank_jobs.PLAIN) == [(False, 0, 1, 0, 1.0)]


@pytest.mark.slow
def test_model_can_outlive_its_group(tmp_path: Path) -> None:
    """torch's own gloo hangs within a few of these rounds; see `_gloo` in backend.py."""
    body = """
import smdistributed.dataparallel.torch.torch_smddp
import torch.distributed as dist

def main(number):
    store = dist.FileStore(f"{RESULTS}/store-{number}", 2)
    dist.init_process_group("smddp", store=store, rank=int(os.environ["RANK"]), world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(50, 50))
    for _ in range(3):
        model(torch.ones(2, 50)).sum().backward()
    dist.all_reduce(torch.zeros(1))
    dist.destroy_process_group()

for number in range(12):
    main(number)
result("ended")
"""
    assert rank_jobs.run(body, 2, tmp_path, opening=rank_jobs.PLAIN) == ["ended", "ended"]
