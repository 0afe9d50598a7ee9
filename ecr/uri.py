"""What a program passes as `image_uri`: the digest in a registry where this build is pushed, else the engine's name."""

from collections.abc import Sequence
from typing import Any

from berth.ecr.image import LocalImage
from berth.ecr.names import region_problems
from berth.ecr.record import Pushed
from berth.images import pins


def pushed_places(image: str, profile: str, local: LocalImage | None, record: Sequence[Pushed]) -> list[Pushed]:
    """Where the build of an image that is here now was pushed, or, with none here, where the last push of it went.

    record: oldest first, as `record.load` gives it.
    """
    of_it = [entry for entry in record if (entry.image, entry.profile) == (image, profile)]
    if local is None:
        return [entry for entry in of_it if entry.config == of_it[-1].config]
    return [entry for entry in of_it if entry.local_id == local.id]


def narrowed(places: Sequence[Pushed], text: str | None) -> list[Pushed]:
    """Those with a text in host and repository, or the one that it names whole; all of them without a text."""
    return [entry for entry in places if entry.name == text] or [
        entry for entry in places if (text or "") in entry.name
    ]


def choice_problems(image: str, profile: str, places: Sequence[Pushed], text: str | None) -> list[str]:
    """Why `text` does not choose one of the places of a build, a sentence; nothing where it is in one place, or in none
    and none was asked for.
    """
    found = narrowed(places, text)
    if len(found) > 1:
        return [
            f"this build of {image} is in {len(found)} places, {_listed(found)}: choose with --registry and a part of "
            "that name which the others do not have, or list them with --json."
        ]
    if found or text is None:
        return []
    elsewhere = f", only to {_listed(places)}" if places else ""
    option = "" if profile == pins.DEFAULT_PROFILE else f" --profile {profile}"
    if region_problems(text):
        advice = "push it there, or name another place"
    else:
        advice = f"run `python build.py push {image}{option} --region {text}`"
    return [f"this build of {image} is not on record as pushed to {text}{elsewhere}: {advice}."]


def _listed(places: Sequence[Pushed]) -> str:
    return " and ".join(entry.name for entry in places)


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
