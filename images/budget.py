"""Whether an image keeps its budget in docker/pins.toml. One on a base of the user's own is measured, not judged."""

from collections.abc import Mapping
from pathlib import Path

from docker import DockerClient

from berth.common import labels
from berth.images.layers import names_of, sizes_from_history
from berth.images.pins import Pins
from berth.images.size import FILE_LAYERS, ImageSize, kept_layer

_MB = 1_000_000
# Compressed bytes of a plain one, with CUDA and without, as both images of each profile have it (docker/README.md).
_TYPICAL_RATIO = {True: 0.58, False: 0.32}
# How far what that makes of an image may lie above its size: 1.6 % for cu124-hf4 (bench/results), 1.2 % for cpu.
_TOO_HIGH = 0.03


def budget_of(kit: Pins, image: str, profile: str, found: Mapping[str, str]) -> int | None:
    """Compressed megabytes of the image with these labels; None if `no_budget` says why it has none."""
    return None if no_budget(kit, profile, found) else kit.profile(profile).budget[image]


def no_budget(kit: Pins, profile: str, found: Mapping[str, str]) -> str:
    """Why an image with these labels is compared with no budget; empty if it is.

    An image that plain `docker build` made has no label of its base.
    """
    if profile not in kit.profiles:
        return f"this checkout has no profile {profile}"
    base = labels.base_name(found)
    return "" if base in ("", kit.base_image, kit.imported_base) else f"it stands on {base}"


def over_budget(measured: ImageSize) -> str:
    """That a measured image is over its budget, as a sentence; empty where it is not."""
    if measured.within_budget:
        return ""
    return (
        f"{measured.image} is {measured.over_mb:.1f} MB over its budget of {measured.budget_mb:.0f} MB compressed: see "
        "which layer or package has grown, or raise the budget in docker/pins.toml."
    )


def likely_over_budget(client: DockerClient, name: str, kit: Pins, cache: Path | None = None) -> str:
    """That the image `name`, which was just built, is over its budget, as a sentence; empty where it seems not to be.

    At no cost: layers that were measured before count as they are, others as what layers of the kit usually come to.
    cache: where measured sizes are kept, by default the user's own.
    """
    image = client.images.get(name)
    kit_image, profile = image.labels[labels.KIT], image.labels[labels.PROFILE]
    budget = budget_of(kit, kit_image, profile, image.labels)
    digests, history = image.attrs["RootFS"]["Layers"], image.history()
    names, plain = names_of(history, digests), sizes_from_history(history, digests)
    if budget is None or not plain:
        return ""
    ratio = _TYPICAL_RATIO[bool(kit.profile(profile).cuda)]
    measured = estimated = 0.0
    for digest in digests:
        if names.get(digest) in FILE_LAYERS:
            continue
        if kept := kept_layer(digest, cache):
            measured += kept / _MB
        else:
            estimated += ratio * plain[digest] / _MB
    if measured + (1 - _TOO_HIGH) * estimated <= budget:
        return ""
    return (
        f"{name} has about {measured + estimated:.0f} MB compressed, over its budget of {budget} MB: `python build.py "
        f"size {kit_image} --profile {profile}` measures it, and says which layer or package has grown."
    )
