"""The `image_uri` of an image: its digest in a registry if this build was pushed, otherwise its name on the engine."""

from collections.abc import Sequence
from typing import Any

from berth.common import labels
from berth.ecr.registry.addresses import hostname, is_loopback
from berth.ecr.repositories.names import parse_host, region_problems
from berth.ecr.repositories.record import Pushed
from berth.images.local_image import LocalImage
from berth.images.pins import pins


def pushed_places(image: str, profile: str, local: LocalImage | None, record: Sequence[Pushed]) -> list[Pushed]:
    """Where the build `local` was pushed; without `local`, the places of the last recorded push of this image.

    record: oldest first, as `record.load` returns it. For an image that a user built FROM berth's, only entries of that
    very image count.
    """
    if local is not None and local.derived:
        return [entry for entry in record if entry.derived and entry.local_id == local.id]
    entries = [entry for entry in record if (entry.image, entry.profile, entry.derived) == (image, profile, "")]
    if local is None:
        return [entry for entry in entries if entry.config == entries[-1].config]
    return [entry for entry in entries if entry.local_id == local.id]


def pushed_places_by_name(name: str, record: Sequence[Pushed]) -> list[Pushed]:
    """The places of the last push of a user's own image, by its name, if it is not on the engine any more."""
    entries = [entry for entry in record if entry.derived and entry.derived in (name, f"{name}:latest")]
    return [entry for entry in entries if entry.config == entries[-1].config]


def preferred(places: Sequence[Pushed], region: str = "") -> Pushed:
    """The place that an estimator most likely needs: ECR (this region first), then other registries, then a registry on
    this machine, which only local mode can use. Among equals the first.
    """

    def rank(entry: Pushed) -> tuple[bool, bool, bool]:
        ecr = parse_host(entry.host)
        return is_on_this_machine(entry), ecr is None, ecr is None or ecr.region != region

    return min(places, key=rank)


def is_on_this_machine(entry: Pushed) -> bool:
    """Whether the image is in a registry on this machine."""
    return is_loopback(hostname(entry.host))


def choice_notes(image: str, places: Sequence[Pushed], chosen: Pushed) -> list[str]:
    """Sentences that tell the user about a choice that was made for him."""
    if is_on_this_machine(chosen):
        return [
            f"{chosen.name} is on this machine, and SageMaker can't pull from it: use it in local mode, and push to "
            "ECR for an estimator on AWS."
        ]
    if len(places) == 1:
        return []
    return [
        f"this build of {image} is in {len(places)} places, {_listed(places)}: this is the one in {chosen.name}; "
        "choose another with --registry and a part of its name."
    ]


def matching_places(places: Sequence[Pushed], text: str | None) -> list[Pushed]:
    """The places whose host and repository equal `text`, otherwise those that contain it; all without a text."""
    return [entry for entry in places if entry.name == text] or [
        entry for entry in places if (text or "") in entry.name
    ]


def named_place(image: str | None, places: Sequence[Pushed]) -> str | None:
    """The one of the places with which an image's name begins, such as HOST/NAME of HOST/NAME:TAG; None if none."""
    return next((entry.name for entry in places if (image or "").startswith(f"{entry.name}:")), None)


def choice_problems(image: str, profile: str, places: Sequence[Pushed], text: str | None) -> list[str]:
    """A sentence if `text` does not choose exactly one of a build's places; empty without a text."""
    found = matching_places(places, text)
    if text is not None and len(found) > 1:
        return [
            f"this build of {image} is in {len(found)} places, {_listed(found)}: choose with --registry and a part of "
            "the name that the others do not have, or list them with --json."
        ]
    if found or text is None:
        return []
    what = image if image in pins.IMAGES else f"--image {image}"
    option = "" if profile == pins.DEFAULT_PROFILE else f" --profile {profile}"
    if region_problems(text):
        advice = "push it there, or name another place"
    else:
        advice = f"run `python build.py push {what}{option} --region {text}`"
    if not places:
        advice += ", or leave --registry out to get the local name, for local mode"
        return [f"this build of {image} is not on record as pushed anywhere: {advice}."]
    return [f"this build of {image} is not on record as pushed to {text}, only to {_listed(places)}: {advice}."]


def _listed(places: Sequence[Pushed]) -> str:
    return " and ".join(entry.name for entry in places)


def unpushed_entry(local: LocalImage) -> dict[str, Any]:
    """The JSON entry of an image that was not pushed: its local name, and the keys of a pushed one that it has."""
    return {
        "image": local.image,
        "derived": local.name if local.derived else "",
        "profile": local.profile,
        "image_uri": local.build_name,
        "tags": [local.push_tag],
        "local_id": local.id,
        "doubles": labels.doubles(local.labels),
    }
