"""Layers that profiles of one hardware share."""

import docker
import pytest

from berth.common.image_names import image_name
from berth.images.inspect.layers import layer_names
from berth.images.pins import pins, pins_file

PINS = pins_file.load()


def layers_up_to_torch(client: docker.DockerClient, name: str) -> list[str]:
    """The digests of an image's layers up to torch's, lowest first."""
    image = client.images.get(name)
    digests = image.attrs["RootFS"]["Layers"]
    made = layer_names(image.history(), digests)
    return digests[: [made[digest] for digest in digests].index("pytorch") + 1]


@pytest.mark.kits_own
def test_profiles_of_one_hardware_share_layers_up_to_torch(client: docker.DockerClient, profile: pins.Profile) -> None:
    """A host or registry with one of these profiles has most of the others' bytes."""
    same_hardware = [
        each for each in PINS.profiles.values() if each.hardware == profile.hardware and "train" in each.images
    ]
    built = [each.name for each in same_hardware if client.images.list(image_name("train", each.name))]
    if profile.name == "cpu-hf4":
        assert pins.DEFAULT_PROFILE in built, "run `make images` first"
    layers_of = {name: layers_up_to_torch(client, image_name("train", name)) for name in built}
    assert len(layers_of[profile.name]) == 7, "base, python, cuda, math, cudnn, nccl, pytorch"
    assert [name for name, layers in layers_of.items() if layers != layers_of[profile.name]] == []
