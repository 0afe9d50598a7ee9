"""A fixture for images with CUDA: runs Python programs in fresh containers without network or GPU."""

from collections.abc import Callable

import docker
import pytest
from docker.models.images import Image

Python = Callable[..., str]


@pytest.fixture
def python(image: Image, client: docker.DockerClient) -> Python:
    """`python("print(6 * 7)", "word", NCCL_DEBUG="INFO")` runs a program in each image.

    It returns stdout and stderr. before: a shell command that runs first.
    """

    def run(program: str, *arguments: str, before: str = "true", **variables: str) -> str:
        script = f'{before} && exec timeout 240 python -B -c "$@"'
        container = client.containers.run(
            image.id,
            ["-c", script, "bash", program, *arguments],
            entrypoint=["bash"],
            environment=variables,
            network_mode="none",
            detach=True,
            labels={"berth.test": "1"},
        )
        try:
            code = container.wait(timeout=300)["StatusCode"]
            printed = container.logs().decode()
        finally:
            container.remove(force=True)
        assert code == 0, printed
        return printed.strip()

    return run
