"""The examples of smdistributed with SDK v3 in local mode."""

from pathlib import Path

import docker
import pytest

from tests.local_mode.example_jobs import assert_job_learns, names


@pytest.mark.parametrize("name", names(every_time="questions"))
def test_example_learns(name: str, client: docker.DockerClient, tmp_path: Path) -> None:
    assert_job_learns(name, 3, client, tmp_path)
