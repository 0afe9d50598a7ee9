"""Jobs with as many ranks and hosts as on GPU instances run on CPUs, with gloo."""

from collections.abc import Callable
from typing import Any

import pytest

PROGRAM = """
import os
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group(os.environ["BERTH_BACKEND"])
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
local = os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]
print("rank", rank, "of", world, *local, dist.get_backend(), "sum", int(total), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("hosts", "ranks"),
    [pytest.param(1, 8, marks=pytest.mark.nightly), (2, 4)],
    ids=["one host with eight ranks, like p4d", "two hosts with four ranks, like g4dn.12xlarge"],
)
def test_every_rank_of_the_plan_joins_the_group(
    hosts: int, ranks: int, user_job: Callable[..., Any], unexpected_lines: Callable[..., list[str]]
) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": str(ranks)}
    ran = user_job({"train.py": PROGRAM}, "train.py", hosts=hosts, environment=environment)
    assert ran.outcome.exit_code == 0, ran.log
    world = hosts * ranks
    for index in range(hosts):
        host = f"algo-{index + 1}"
        lines = sorted(line for line in ran.lines_of(host) if line.startswith("rank "))
        assert lines == [
            f"rank {index * ranks + local} of {world} {local} {ranks} gloo sum {world * (world + 1) // 2}"
            for local in range(ranks)
        ]
    assert f"berth:   ranks: {ranks} on each host, {world} in all, by mpirun" in ran.lines_of("algo-1")
    assert unexpected_lines(ran.log) == []
