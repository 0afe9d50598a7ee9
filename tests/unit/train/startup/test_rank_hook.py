"""The events that a rank's Python notes, with the real torch and accelerate, in processes like the wrapper's."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from berth.train.startup.rank_events import alone_sentence

START = "from berth.train.startup import start_hook; start_hook.start()"
ACCELERATED = """
import os
from accelerate import Accelerator
from accelerate.state import AcceleratorState
Accelerator()
AcceleratorState._reset_state(reset_partial_state=True)
os.environ["ACCELERATE_USE_CPU"] = "true"
print(Accelerator().num_processes)
"""


def run_ranks(text: str, folder: Path, code: int = 0, **environ: str) -> list[str]:
    """The output of two ranks that run `text`, each in its own folder, and end with exit code `code`."""
    ranks = []
    for rank in range(2):
        (folder / str(rank)).mkdir()
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": 29611}
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}, **environ}
        environment |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
        command = [sys.executable, "-P", "-c", f"{START}\n{textwrap.dedent(text)}"]
        pipe = subprocess.PIPE
        ranks.append(subprocess.Popen(command, cwd=folder / str(rank), env=environment, stdout=pipe, text=True))
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [code, code]
    return outputs


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
CREATE_EVENTS = "open('events', 'w').close()"
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
def test_accelerate_without_and_with_process_group_is_noted(tmp_path: Path) -> None:
    """The first Accelerator forms a group of two ranks but does not use it, the second one does.

    Normally the start hook sets ACCELERATE_USE_CPU to true, and the first one uses the group as well.
    """
    run_ranks(CREATE_EVENTS + ACCELERATED, tmp_path, ACCELERATE_USE_CPU="false", BERTH_RANK_EVENTS="events")
    expected = ["process group requested", "process group of 2", "accelerate apart", "accelerate together"]
    assert events(tmp_path) == [expected, expected]


@pytest.mark.nightly
def test_ignored_fsdp_on_cpu_is_noted(tmp_path: Path) -> None:
    assert (
        run_ranks(CREATE_EVENTS + SHARDED, tmp_path, BERTH_RANK_EVENTS="events") == ["DistributedType.MULTI_CPU\n"] * 2
    )
    expected = ["process group requested", "process group of 2", "accelerate without fsdp"]
    assert events(tmp_path) == [expected, expected]


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
