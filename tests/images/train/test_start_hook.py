"""The hook that every Python of the training image runs at its start; it replaces `train` under SDK v3's drivers."""

import re

import pytest
from testinfra.host import Host

LIMIT = "timeout 120"
# The ranks get the same weights only if accelerate averages their gradients.
PROGRAM = """
import torch
from accelerate import Accelerator
torch.set_num_threads(1)
accelerator = Accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.utils.data.DataLoader([torch.tensor([float(n)]) for n in range(4)], batch_size=1)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
steps = 0
for row in rows:
    accelerator.backward(model(row).sum())
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
weight = accelerator.unwrap_model(model).weight.item()
print(f"{accelerator.process_index} of {accelerator.num_processes}, {steps} steps, weight {weight:.6f}\\n", end="")
"""


def run_ranks(train: Host, launcher: str, variables: str = "") -> list[str]:
    """Run PROGRAM; the ranks' lines, sorted."""
    train.check_output(f"cat > /tmp/program.py <<'EOF'{PROGRAM}EOF")
    result = train.run(f"{variables} {LIMIT} {launcher} /tmp/program.py")
    assert result.rc == 0, result.stderr
    assert "berth:" not in result.stdout, "the hook must not warn that the ranks trained alone"
    return sorted(re.findall(r"\d of \d, .*", result.stdout))


# tests/local_mode/test_sdk3.py tests the same with the SDK's own drivers.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("launcher", "variables"),
    [
        ("python -m torch.distributed.run --nproc_per_node=2 --master_port=7777", "SM_MASTER_ADDR=localhost"),
        # The command of mpi_utils.py in sagemaker 3.27, which does not set torch's variables.
        ("mpirun --host localhost:2 -np 2 --allow-run-as-root python -m mpi4py", "SM_MASTER_ADDR=localhost"),
    ],
    ids=["Torchrun", "MPI"],
)
def test_ranks_without_gpu_train_together_under_both_launchers(train: Host, launcher: str, variables: str) -> None:
    first, second = run_ranks(train, launcher, variables)
    assert first.startswith("0 of 2, 2 steps, weight ")
    assert second == first.replace("0 of 2", "1 of 2")


def test_hook_changes_nothing_in_a_single_python(train: Host) -> None:
    """It imports only its own modules, prints nothing and sets no variable."""
    code = "import os, sys; print(os.environ.get('ACCELERATE_USE_CPU'), *(m for m in sys.modules if m[:5] == 'berth'))"
    result = train.run(f'{LIMIT} python -c "{code}"')
    hook = ("start_hook", "after_import", "smdistributed_finder")
    modules = ["berth", "berth.train", "berth.train.startup", *(f"berth.train.startup.{name}" for name in hook)]
    assert (result.stdout, result.stderr) == (f"None {' '.join(modules)}\n", "")
