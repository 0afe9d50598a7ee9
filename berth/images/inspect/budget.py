"""Whether an image keeps its budget in docker/pins.toml. One on a base of the user's own is measured, not judged."""

from collections.abc import Mapping

from berth.common import labels
from berth.images.inspect.size import ImageSize
from berth.images.pins.pins import Pins


def budget_of(pins: Pins, image: str, profile: str, found: Mapping[str, str]) -> int | None:
    """Compressed megabytes of the image with these labels; None if `no_budget` says why it has none."""
    return None if no_budget(pins, profile, found) else pins.profile(profile).budget[image]


def no_budget(pins: Pins, profile: str, found: Mapping[str, str]) -> str:
    """Why an image with these labels is compared with no budget; empty if it is.

    An image that plain `docker build` made has no label of its base.
    """
    if profile not in pins.profiles:
        return f"this checkout has no profile {profile}"
    base = labels.base_name(found)
    return "" if base in ("", pins.base_image, pins.imported_base) else f"it stands on {base}"


def over_budget(measured: ImageSize) -> str:
    """That a measured image is over its budget, as a sentence; empty where it is not."""
    if measured.within_budget:
        return ""
    return (
        f"{measured.image} is {measured.over_mb:.1f} MB over its budget of {measured.budget_mb:.0f} MB compressed: see "
        "which layer or package has grown, or raise the budget in docker/pins.toml."
    )
