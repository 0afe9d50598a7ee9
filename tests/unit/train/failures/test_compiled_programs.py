"""Programs of two ranks that compile or shard their model. With the start hook they must compute the same bits, and
torch.compile must make as many graphs with as many breaks as without it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOOK = "from berth.train.startup import start_hook; start_hook.start()"
PROGRAM = """
import hashlib, json, os, shutil
import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
rank, measurements = int(os.environ["RANK"]), {}
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/../group", rank=rank, world_size=2)

def note(name, tensors):
    whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in tensors]
    digest = hashlib.sha256(b"".join(each.detach().contiguous().numpy().tobytes() for each in whole))
    breaks, graphs = sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
    measurements[name] = [digest.hexdigest(), breaks, graphs, counters["frames"]["total"]]
    counters.clear()
    torch._dynamo.reset()

def trained(model, optimizer=None, step=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 0.01)
    for number in range(3):
        torch.manual_seed(number + 10 * rank)
        model(torch.randn(4, 8)).square().sum().backward()
        (step or optimizer.step)()
        optimizer.zero_grad()
    return model.parameters()

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))

@torch.compile(backend="eager")
def gathered(x):
    parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x)
    whole = torch.cat(parts) + 1
    dist.broadcast(x, 0)
    return whole + x.sum()

@torch.compile(backend="inductor" if shutil.which("g++") else "eager", fullgraph=True)
def reduced(x):
    dist.all_reduce(x)
    whole = torch.empty(2 * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(whole, x * 2)
    return whole / dist.get_world_size()

# The first exchange and the first steps, which the hook notes, are compiled.
note("exchange that breaks a graph", [gathered(torch.full((2, 2), rank + n)) for n in (1.0, 2.0)])
note("exchange in a graph", [reduced(torch.full((2, 2), rank + n)) for n in (1.0, 2.0)])
model = network()
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
note("step", trained(model, optimizer, torch.compile(optimizer.step, backend="eager")))
note("DDP", trained(torch.compile(DistributedDataParallel(network()), backend="eager")))
mesh = init_device_mesh("cpu", (2,))
split = distribute_tensor(torch.arange(16.0).reshape(4, 4), mesh, [Shard(0)])
note("DTensor", [(split @ split.redistribute(mesh, [Replicate()])).redistribute(mesh, [Shard(1)])])
note("sharded", trained(fully_shard(torch.compile(network(), backend="eager"), mesh=mesh)))
open("measurements", "w").write(json.dumps(measurements))
dist.destroy_process_group()
"""


def start(folder: Path, program: str) -> list[subprocess.Popen[str]]:
    """Start two ranks, each in its own folder."""
    ranks = []
    for rank in range(2):
        (folder / str(rank)).mkdir(parents=True)
        (folder / str(rank) / "events").touch()
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "OMP_NUM_THREADS": 1}
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
        environment |= {"BERTH_RANK_EVENTS": "events", "MASTER_ADDR": "127.0.0.1"}
        command = [sys.executable, "-P", "-c", program]
        pipe = subprocess.PIPE
        ranks.append(
            subprocess.Popen(command, cwd=folder / str(rank), env=environment, stdout=pipe, stderr=pipe, text=True)
        )
    return ranks


def results(folder: Path, ranks: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    return [json.loads((folder / str(rank) / "measurements").read_text()) for rank in range(2)]


@pytest.mark.nightly
def test_hook_changes_neither_results_nor_compiled_graphs(tmp_path: Path) -> None:
    started = {name: start(tmp_path / name, f"{code}\n{PROGRAM}") for name, code in (("with", HOOK), ("without", ""))}
    watched, plain = (results(tmp_path / name, ranks) for name, ranks in started.items())
    for rank in range(2):
        assert watched[rank].keys() == plain[rank].keys()
        for name, (digest, breaks, graphs, frames) in plain[rank].items():
            assert watched[rank][name][:3] == [digest, breaks, graphs], name
            assert watched[rank][name][3] <= frames, name
        events = (tmp_path / "with" / str(rank) / "events").read_text().splitlines()
        assert "exchanged before the first step" in events
