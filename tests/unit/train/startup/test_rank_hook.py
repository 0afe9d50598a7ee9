"""The events that a rank's Python notes, with the real torch and accelerate, in processes like the wrapper's.

In programs that compile or shard their model, noting them must change neither the results nor the compiled graphs.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.train.startup.rank_events import alone_sentence
from tests.unit.train.two_ranks import CREATE_EVENTS, START, run_ranks

# The first Accelerator forms a group of two ranks but does not use it, the second one does. Normally the start hook
# sets ACCELERATE_USE_CPU to true, and the first one uses the group as well.
ACCELERATED = """
import os
from accelerate import Accelerator
from accelerate.state import AcceleratorState
os.environ["ACCELERATE_USE_CPU"] = "false"
Accelerator()
AcceleratorState._reset_state(reset_partial_state=True)
os.environ["ACCELERATE_USE_CPU"] = "true"
print(Accelerator().num_processes)
"""


def events(folder: Path) -> list[list[str]]:
    """The events in the file `events` of each rank's folder."""
    return [(folder / str(rank) / "events").read_text().splitlines() for rank in range(2)]


# Requests fsdp like Trainer; accelerate then uses DDP on CPUs.
SHARDED = """
import os
from accelerate import Accelerator
os.environ["ACCELERATE_USE_FSDP"] = "true"
print(Accelerator().distributed_type)
"""
# A script for SMDDP; `model` may be wrapped or not.
STEP = """
import torch
import smdistributed.dataparallel.torch.distributed as dist
from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group()
dist.barrier()
torch.manual_seed(0)
model = {model}
optimizer = {optimizer}
for step in range(2):
    model(torch.full((2, 4), dist.get_rank() + 1.0)).sum().backward()
    optimizer.step()
    dist.all_reduce(torch.ones(1))
"""
LINEAR = "torch.nn.Linear(4, 2)"
SGD = "torch.optim.SGD(model.parameters(), 0.1)"
ZERO = "ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-P', '-c', {START!r}], check=True)"
ALONE = "berth: 2 ranks ran, but no process group of 2 was formed"


def test_program_without_torch_has_no_events(tmp_path: Path) -> None:
    assert run_ranks(CREATE_EVENTS, tmp_path, BERTH_RANK_EVENTS="events") == ["", ""]
    assert events(tmp_path) == [[], []]


@pytest.mark.slow
def test_rank_0_warns_once_under_sdk3(tmp_path: Path) -> None:
    """Children of rank 0 and other ranks do not warn. The event files are removed."""
    first, second = run_ranks(CHILD, tmp_path, SM_MASTER_ADDR="algo-1")
    assert first.startswith(ALONE)
    assert (first.count("\n"), second) == (1, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_failed_program_is_not_warned_under_sdk3(tmp_path: Path) -> None:
    assert run_ranks("import not_installed", tmp_path, code=1, SM_MASTER_ADDR="algo-1") == ["", ""]


SCRIPT = "from berth.train.startup import rank_hook; import os; [rank_hook.watch_script(os.environ, 8) for _ in '12']"
IDLE, APART = "berth: 7 of 8 GPUs may stay idle", "berth: 2 hosts may each train their own model"
NOTE_GROUP = "open(os.environ['BERTH_RANK_EVENTS'], 'a').write('process group of 8')"


@pytest.mark.parametrize(
    ("script", "hosts", "lines"),
    [
        (SCRIPT, '["algo-1"]', [IDLE, "ran", IDLE]),
        (f"{SCRIPT}; {NOTE_GROUP}", '["algo-1"]', [IDLE, "ran"]),
        (SCRIPT.replace(" 8", " 1"), '["algo-1"]', ["ran"]),
        (SCRIPT.replace(" 8", " 0"), '["algo-1", "algo-2"]', [APART, "ran", APART]),
    ],
    ids=["idle GPUs", "process per GPU", "one GPU", "two hosts"],
)
def test_script_under_sdk3_warns_at_start_and_end(script: str, hosts: str, lines: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, "SM_HOSTS": hosts, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-P", "-c", f"{script}; print('ran')"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [line.partition(",")[0] for line in result.stdout.splitlines()] == lines
    assert result.stderr == ""
    assert not list(tmp_path.iterdir())


def test_ranks_of_other_launchers_are_not_warned(tmp_path: Path) -> None:
    assert run_ranks(CHILD, tmp_path) == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "printed", "noted"),
    [
        (ACCELERATED, "2\n", ["accelerate apart", "accelerate together"]),
        pytest.param(SHARDED, "DistributedType.MULTI_CPU\n", ["accelerate without fsdp"], marks=pytest.mark.nightly),
    ],
    ids=["without and with a process group", "ignored fsdp on a CPU"],
)
def test_accelerate_is_noted(program: str, printed: str, noted: list[str], tmp_path: Path) -> None:
    outputs = run_ranks(CREATE_EVENTS + program, tmp_path, BERTH_RANK_EVENTS="events")
    assert outputs == [printed] * 2
    assert events(tmp_path) == [["process group requested", "process group of 2", *noted]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "optimizer", "exchanged", "weights"),
    [
        (LINEAR, SGD, 0, "differ"),
        pytest.param(f"DistributedDataParallel({LINEAR})", SGD, 0, "are equal", marks=pytest.mark.nightly),
        pytest.param(f"DistributedDataParallel({LINEAR})", ZERO, 1, "are equal", marks=pytest.mark.nightly),
        (f"fully_shard({LINEAR})", SGD, 1, "are sharded"),
    ],
    ids=["not wrapped", "wrapped", "wrapped, sharded optimizer", "sharded"],
)
def test_first_step_notes_exchange_and_weights(
    model: str, optimizer: str, exchanged: int, weights: str, tmp_path: Path
) -> None:
    """Exchanges after the first step, such as of a metric, are not noted."""
    run_ranks(CREATE_EVENTS + STEP.format(model=model, optimizer=optimizer), tmp_path, BERTH_RANK_EVENTS="events")
    seen = events(tmp_path)
    assert [each[:2] for each in seen] == [["process group requested", "process group of 2"]] * 2
    assert [each.count("exchanged before the first step") for each in seen] == [exchanged] * 2
    digests = [event for each in seen for event in each if event.startswith("weights after the first step ")]
    count = {"differ": (2, 2), "are equal": (2, 1), "are sharded": (0, 0)}[weights]
    assert (len(digests), len(set(digests))) == count
    assert alone_sentence(seen, 2).startswith("the ranks' weights differ") == (weights == "differ")


COMPILED = """
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


def results(folder: Path, hook: str) -> list[dict[str, Any]]:
    run_ranks(CREATE_EVENTS + COMPILED, folder, hook=hook, BERTH_RANK_EVENTS="events")
    return [json.loads((folder / str(rank) / "measurements").read_text()) for rank in range(2)]


@pytest.mark.nightly
def test_hook_changes_neither_results_nor_compiled_graphs(tmp_path: Path) -> None:
    watched, plain = results(tmp_path / "with", START), results(tmp_path / "without", "")
    for rank in range(2):
        assert watched[rank].keys() == plain[rank].keys()
        for name, (digest, breaks, graphs, frames) in plain[rank].items():
            assert watched[rank][name][:3] == [digest, breaks, graphs], name
            assert watched[rank][name][3] <= frames, name
        events = (tmp_path / "with" / str(rank) / "events").read_text().splitlines()
        assert "exchanged before the first step" in events
