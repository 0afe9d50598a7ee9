"""Some failing programs of bench/failing as jobs of the image.

They need mpirun, hyperparameters, a memory limit, or the image's own start hook (torchrun.sh).
`python -m bench.failures` runs all programs.
"""

from pathlib import Path

import docker
import pytest

from bench import failures
from bench.failing.cases import CASES, Case
from tests.images.train.conftest import IMAGE

_PROGRAMS = ("lost_worker.py", "many_hyperparameters.py", "rank_dies_slowly.py", "torchrun.sh")
SELECTED = [case for case in CASES if case.program in _PROGRAMS]


@pytest.mark.parametrize("case", [pytest.param(case, id=case.program) for case in SELECTED])
def test_job_reports_why_the_program_failed(case: Case, client: docker.DockerClient, tmp_path: Path) -> None:
    end = failures.run(client, IMAGE, case, tmp_path)
    assert failures.is_expected(case, end), f"{end.code}: {end.sentence}\n{end.log}"
