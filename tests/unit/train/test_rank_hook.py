"""What a rank's own Python notes: with the real torch and accelerate, in processes as our wrapper starts them."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

START = "from berth.train import start_hook; start_hook.start()"
ACCELERATED = """
import os
from accelerate import Accelerator
from accelerate.state import AcceleratorState
Accelerator()
AcceleratorState._reset_state(reset_partial_state=True)
os.environ["ACCELERATE_USE_CPU"] = "true"
print(Accelerator().num_processes)
"""


def run_ranks(code: str, folder: Path, **environ: str) -> list[list[str]]:
    """The events of two ranks that run `code`, each in a folder of its own."""
    ranks = []
    for rank in range(2):
        home = folder / str(rank)
        home.mkdir()
        (home / "events").touch()
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": 29611}
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}, **environ}
        environment |= {"MASTER_ADDR": "127.0.0.1", "BERTH_RANK_EVENTS": str(home / "events"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-c", f"{START}\n{textwrap.dedent(code)}"]
        ranks.append(subprocess.Popen(command, cwd=home, env=environment))
    assert [rank.wait(timeout=120) for rank in ranks] == [0, 0]
    return [(folder / str(rank) / "events").read_text().splitlines() for rank in range(2)]


def test_a_program_without_torch_notes_nothing(tmp_path: Path) -> None:
    assert run_ranks("print('alone')", tmp_path) == [[], []]


@pytest.mark.slow
def test_accelerate_is_seen_to_train_apart_beside_a_group_and_then_together(tmp_path: Path) -> None:
    """It joins a group of both ranks in either case. The start-up file would have set the variable."""
    events = ["process group asked for", "process group of 2", "accelerate apart", "accelerate together"]
    assert run_ranks(ACCELERATED, tmp_path, ACCELERATE_USE_CPU="false") == [events, events]
