"""Compares an image with its budget in docker/pins.toml. An image on another base has no budget."""

from collections.abc import Mapping

from berth.common import labels
from berth.images.inspect.size import ImageSize
from berth.images.pins.pins import Pins


def budget_of(pins: Pins, image: str, profile: str, image_labels: Mapping[str, str]) -> int | None:
    """The budget in compressed megabytes of the image with these labels; None if it has none (see `no_budget`)."""
    return None if no_budget(pins, profile, image_labels) else pins.profile(profile).budget[image]


def no_budget(pins: Pins, profile: str, image_labels: Mapping[str, str]) -> str:
    """Why an image with these labels has no budget; empty if it has one.

    A plain `docker build` sets no label with the base; its images have a budget too.
    """
    if profile not in pins.profiles:
        return f"this checkout has no profile {profile}"
    base = labels.base_name(image_labels)
    return "" if base in ("", pins.base_image, pins.imported_base) else f"its base is {base}"


def over_budget(measured: ImageSize) -> str:
    """A sentence if a measured image is over its budget; else empty."""
    if measured.within_budget:
        return ""
    return (
        f"{measured.image} is {measured.over_mb:.1f} MB over its budget of {measured.budget_mb:.0f} MB compressed: see "
        "which layer or package has grown, or raise the budget in docker/pins.toml."
    )
