"""What the tests of images with CUDA ask: a Python program in a fresh container, without network and without a GPU."""

from collections.abc import Callable

import docker
import pytest
from docker.models.images import Image

Python = Callable[..., str]


@pytest.fixture
def python(image: Image, client: docker.DockerClient) -> Python:
    """`python("print(6 * 7)", "word", NCCL_DEBUG="INFO")`: what the program prints, on both streams, in each image."""

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
            said = container.logs().decode()
        finally:
            container.remove(force=True)
        assert code == 0, said
        return said.strip()

    return run
