"""What a program passes as `image_uri`: the digest in a registry where this build is pushed, else the engine's name."""

from collections.abc import Sequence
from typing import Any

from berth.ecr.image import LocalImage
from berth.ecr.record import Pushed


def pushed_places(image: str, profile: str, local: LocalImage | None, record: Sequence[Pushed]) -> list[Pushed]:
    """Where the build of an image that is here now was pushed, or, with none here, where the last push of it went.

    record: oldest first, as `record.load` gives it.
    """
    of_it = [entry for entry in record if (entry.image, entry.profile) == (image, profile)]
    if local is None:
        return [entry for entry in of_it if entry.config == of_it[-1].config]
    return [entry for entry in of_it if entry.local_id == local.id]


def of_the_engine(local: LocalImage) -> dict[str, Any]:
    """The same keys, as far as it has them, of an image that is pushed nowhere: local mode takes its name."""
    return {
        "image": local.image,
        "profile": local.profile,
        "image_uri": local.exact_tag,
        "tags": [local.exact],
        "local_id": local.id,
        "doubles": list(local.doubles),
    }
