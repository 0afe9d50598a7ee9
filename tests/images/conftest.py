"""Running containers of the built images, looked at through testinfra."""

import os
from collections.abc import Iterator

import docker
import pytest
import testinfra
from docker.models.images import Image
from testinfra.host import Host

from berth.images import engine, pins
from berth.images.errors import UserError

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return engine.connect()


@pytest.fixture(scope="session")
def profile() -> pins.Profile:
    return pins.load().profile(PROFILE)


def built(client: docker.DockerClient, name: str) -> Image:
    """An image by its moving tag; a missing one is a failure, for a skip would hide that nothing was tested."""
    try:
        return client.images.get(f"berth-{name}:{PROFILE}")
    except docker.errors.ImageNotFound:
        raise UserError(f"berth-{name}:{PROFILE} is not built: run `make images` first.") from None


def running(client: docker.DockerClient, name: str) -> Iterator[Host]:
    """A container without network that waits, for as long as its tests last."""
    container = client.containers.run(
        built(client, name).id,
        ["3600"],
        entrypoint=["sleep"],
        network_mode="none",
        detach=True,
        labels={"berth.test": "1"},
    )
    try:
        yield testinfra.get_host(f"docker://{container.id}")
    finally:
        container.remove(force=True)


@pytest.fixture(scope="session")
def train(client: docker.DockerClient) -> Iterator[Host]:
    yield from running(client, "train")


@pytest.fixture(scope="session")
def serve(client: docker.DockerClient) -> Iterator[Host]:
    yield from running(client, "serve")


@pytest.fixture(params=pins.IMAGES, scope="session")
def either(request: pytest.FixtureRequest) -> Host:
    """Each image in turn."""
    host: Host = request.getfixturevalue(request.param)
    return host


@pytest.fixture(params=pins.IMAGES, scope="session")
def image(request: pytest.FixtureRequest, client: docker.DockerClient) -> Image:
    """Each image in turn, as the engine describes it."""
    return built(client, request.param)
