"""What a program passes as `image_uri`: the digest in a registry where this build is pushed, else the engine's name."""

from collections.abc import Sequence
from typing import Any

from berth.ecr.registry.addresses import hostname, is_loopback
from berth.ecr.repositories.names import parse_host, region_problems
from berth.ecr.repositories.record import Pushed
from berth.images.local_image import LocalImage
from berth.images.pins import pins


def pushed_places(image: str, profile: str, local: LocalImage | None, record: Sequence[Pushed]) -> list[Pushed]:
    """Where the build of an image that is here now was pushed, or, with none here, where the last push of it went.

    record: oldest first, as `record.load` gives it; of images that somebody built FROM the kit's only those that are
    `local` itself.
    """
    if local is not None and local.derived:
        return [entry for entry in record if entry.derived and entry.local_id == local.id]
    of_it = [entry for entry in record if (entry.image, entry.profile, entry.derived) == (image, profile, "")]
    if local is None:
        return [entry for entry in of_it if entry.config == of_it[-1].config]
    return [entry for entry in of_it if entry.local_id == local.id]


def of_an_own_image(name: str, record: Sequence[Pushed]) -> list[Pushed]:
    """Where the last push of an image went that its owner calls so, and that is not on the engine any more."""
    of_it = [entry for entry in record if entry.derived and entry.derived in (name, f"{name}:latest")]
    return [entry for entry in of_it if entry.config == of_it[-1].config]


def preferred(places: Sequence[Pushed], region: str = "") -> Pushed:
    """The place that an estimator most likely takes: ECR, in this region if it is in several, then other registries,
    then one on this machine, from where only local mode takes it; of equals that where it was first.
    """

    def rank(entry: Pushed) -> tuple[bool, bool, bool]:
        ecr = parse_host(entry.host)
        return is_here(entry), ecr is None, ecr is None or ecr.region != region

    return min(places, key=rank)


def is_here(entry: Pushed) -> bool:
    """Whether it is in a registry on this machine."""
    return is_loopback(hostname(entry.host))


def choice(image: str, places: Sequence[Pushed], chosen: Pushed) -> list[str]:
    """What a user should know of a choice that was made for him, a sentence each."""
    if is_here(chosen):
        return [
            f"{chosen.name} is on this machine, from where SageMaker pulls nothing: local mode takes it, and an "
            "estimator on AWS takes what is pushed to ECR."
        ]
    if len(places) == 1:
        return []
    return [
        f"this build of {image} is in {len(places)} places, {_listed(places)}: this is the one in {chosen.name}; "
        "--registry and a part of its name chooses another."
    ]


def narrowed(places: Sequence[Pushed], text: str | None) -> list[Pushed]:
    """Those with a text in host and repository, or the one that it names whole; all of them without a text."""
    return [entry for entry in places if entry.name == text] or [
        entry for entry in places if (text or "") in entry.name
    ]


def named_place(image: str | None, places: Sequence[Pushed]) -> str | None:
    """The place that an image's name has in front, such as HOST/NAME of HOST/NAME:TAG; None if it has none of them."""
    return next((entry.name for entry in places if (image or "").startswith(f"{entry.name}:")), None)


def choice_problems(image: str, profile: str, places: Sequence[Pushed], text: str | None) -> list[str]:
    """Why `text` does not choose one of the places of a build, a sentence; nothing without a text."""
    found = narrowed(places, text)
    if text is not None and len(found) > 1:
        return [
            f"this build of {image} is in {len(found)} places, {_listed(found)}: choose with --registry and a part of "
            "that name which the others do not have, or list them with --json."
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
        advice += ", or leave --registry out for the name that local mode takes"
        return [f"this build of {image} is not on record as pushed anywhere: {advice}."]
    return [f"this build of {image} is not on record as pushed to {text}, only to {_listed(places)}: {advice}."]


def _listed(places: Sequence[Pushed]) -> str:
    return " and ".join(entry.name for entry in places)


def of_the_engine(local: LocalImage) -> dict[str, Any]:
    """The same keys, as far as it has them, of an image that is pushed nowhere: local mode takes its name."""
    return {
        "image": local.image,
        "derived": local.name if local.derived else "",
        "profile": local.profile,
        "image_uri": local.build_name,
        "tags": [local.push_tag],
        "local_id": local.id,
        "doubles": list(local.doubles),
    }
