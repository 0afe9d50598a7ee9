"""Images of an engine that does not exist."""

from collections.abc import Mapping
from typing import Any

from berth.images.local_image import LocalImage


def local_image(
    labels: Mapping[str, str],
    image_id: str = "sha256:0",
    *,
    image: str = "train",
    profile: str = "cpu",
    name: str = "berth-train:cpu",
    derived: bool = False,
    **attrs: Any,
) -> LocalImage:
    """An image with these labels; attrs: of `docker image inspect`, such as Size."""
    inspected = {"Size": 30, "RootFS": {"Layers": []}, "Config": {"Labels": labels}, **attrs}
    return LocalImage(name, image_id, image, profile, derived, inspected)
