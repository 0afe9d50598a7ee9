"""Updates from Debian's archive for the built images."""

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.models.images import Image

from berth.common.errors import UserError
from berth.images.inspect import debian
from berth.images.network import build_network

OLDER = "2020a-0+deb11u1"


@pytest.fixture
def older_tzdata(slow_image: Image, client: docker.DockerClient) -> Iterator[str]:
    """The image with an older version of tzdata in dpkg's database."""
    script = f"sed -i '/^Package: tzdata$/,/^$/s/^Version: .*/Version: {OLDER}/' /var/lib/dpkg/status"
    container = client.containers.create(slow_image.id, ["-c", script], entrypoint=["bash"], network_mode="none")
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 0
        made = container.commit("berth-test", "older-tzdata")
    finally:
        container.remove(force=True)
    yield "berth-test:older-tzdata"
    client.images.remove(made.id, force=True)


def test_newer_package_in_the_archive_is_found(older_tzdata: str, client: docker.DockerClient, tmp_path: Path) -> None:
    found = debian.ask_archive(client, older_tzdata, build_network.gather(os.environ), tmp_path)
    update = next(update for update in found if update.name == "tzdata")
    assert update.installed == OLDER
    assert update.candidate > OLDER
    assert list(client.containers.list(all=True, filters={"ancestor": older_tzdata})) == []


def test_unreachable_archive_is_reported(slow_image: Image, client: docker.DockerClient, tmp_path: Path) -> None:
    nowhere = build_network.Network(
        None, build_network.PackageIndex(), (), "", "", "deb http://127.0.0.1:9/debian bookworm main\n"
    )
    with pytest.raises(UserError, match=r"^Debian's archive can't be asked for updates of sha256:\w+ \(.+\): look at"):
        debian.ask_archive(client, str(slow_image.id), nowhere, tmp_path)
