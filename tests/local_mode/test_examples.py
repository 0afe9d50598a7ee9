"""The examples of smdistributed with SDK v2 in local mode."""

from pathlib import Path

import docker
import pytest

from tests.local_mode.example_jobs import assert_job_learns_on_two_ranks, names


@pytest.mark.parametrize("name", names(every_time="texts"))
def test_example_learns_on_two_ranks(name: str, client: docker.DockerClient, tmp_path: Path) -> None:
    assert_job_learns_on_two_ranks(name, 2, client, tmp_path)
