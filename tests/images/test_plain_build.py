"""`docker build` without build.py: layers, labels, and errors for wrong arguments."""

import os
import subprocess
from collections.abc import Iterator

import docker
import pytest

from berth.common import engine
from berth.images.build import base
from berth.images.pins import pins, pins_file

TAG = "berth-test-plain:1"


def plain_build(target: str, **arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command of docker/README.md with the base of this machine."""
    build_arguments = {"BASE_IMAGE": os.environ.get(base.VARIABLE) or pins_file.load().base_image, **arguments}
    words = ["build", "--progress=plain", "--file", "docker/Dockerfile", "--target", target, "--tag", TAG, "."]
    words += [word for name, value in build_arguments.items() for word in ("--build-arg", f"{name}={value}")]
    return subprocess.run(
        [str(engine.find_client()), *words],
        cwd=pins.ROOT,
        env=engine.client_environment(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.fixture
def plain(client: docker.DockerClient) -> Iterator[str]:
    """The name of an image made by plain `docker build`; it is removed after the test."""
    yield TAG
    if client.images.list(TAG):
        client.images.remove(TAG, force=True)


@pytest.mark.parametrize("image", ["train", pytest.param("serve", marks=pytest.mark.nightly)])
def test_plain_docker_build_makes_the_layers_of_build_py(
    image: str, plain: str, client: docker.DockerClient, profile: pins.Profile
) -> None:
    """All layers come from the cache, whichever build was first."""
    without = ",".join(part for part in profile.files if part in pins.FILE_PARTS[image])
    build = plain_build(image, PROFILE=profile.name, WITHOUT=without)
    assert build.returncode == 0, build.stdout[-3000:]
    ours, plain_image = client.images.get(f"berth-{image}:{profile.name}"), client.images.get(plain)
    assert plain_image.attrs["RootFS"] == ours.attrs["RootFS"]
    assert plain_image.labels.items() <= ours.labels.items()
    assert {name for name in plain_image.labels if "sagemaker" not in name} == {
        "berth.kit",
        "berth.left-out",
        "berth.profile",
        "org.opencontainers.image.licenses",
        "org.opencontainers.image.version",
        *(["berth.smdistributed"] if image == "train" else []),
    }


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ({"PROFILE": "cu13"}, "berth: error: Unknown profile 'cu13'; docker/locks has cpu, cpu-hf4, cu124,"),
        ({"WITHOUT": "efs"}, "berth: error: Unknown file 'efs' in WITHOUT"),
    ],
)
def test_invalid_build_argument_is_reported_first(
    arguments: dict[str, str], printed: str, plain: str, client: docker.DockerClient
) -> None:
    done = plain_build("train", **arguments)
    assert done.returncode != 0
    assert printed in done.stdout
    assert not client.images.list(plain)


def test_target_missing_in_the_profile_is_reported(plain: str) -> None:
    done = plain_build("serve", PROFILE="cpu-hf4")
    assert done.returncode != 0
    assert (
        "berth: error: this profile has no serve image, because its software set is for the other image only"
        in done.stdout
    )
