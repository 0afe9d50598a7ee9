"""Selects the image of a command: berth's image of a profile, or one that a user built FROM it.

An image that was built FROM berth's inherits its labels, which name the kind (train or serve) and the profile.
"""

from collections.abc import Mapping, Sequence

from docker import DockerClient
from docker.models.images import Image

from berth.common import labels
from berth.common.engine import find_image
from berth.common.errors import UserError
from berth.common.image_names import image_name, repository_name
from berth.images.local_image import LocalImage
from berth.images.pins import pins, pins_file


def is_build_name(name: str, image_labels: Mapping[str, str]) -> bool:
    """Whether a build or a push (which may add digits) gave an image with these labels this name, in any registry.
    Other names come from users.
    """
    image, profile, short = (
        image_labels.get(labels.KIT, ""),
        image_labels.get(labels.PROFILE, ""),
        name.rpartition("/")[2],
    )
    if not profile:  # the base, which has no profile
        return short.startswith(f"{repository_name(image)}:")
    latest, build = (image_name(image, tag) for tag in (profile, labels.exact(image_labels, profile)))
    return short in (latest, build) or short.startswith(f"{build}-")


def find_built_image(client: DockerClient, name: str) -> Image:
    """An image of the engine. If one of berth's is missing, the UserError names the command that builds it."""
    return find_image(client, name, pins.profile_names())


def require_images(images: Sequence[str], profile: str, name: str | None = None) -> None:
    """UserError if no image is named and the profile has none of `images`. Needs no engine."""
    if name is None:
        pins_file.load().profile(profile).available_images(images)


def select_image(client: DockerClient, image: str | None, profile: str, name: str | None = None) -> LocalImage:
    """The image `name`, or without a name the image that was built last for `image` and `profile`.

    image: train or serve; None if a name is given and either will do. profile: for a named image it must be that of its
    label, or the default profile, which counts as not given. UserError if there is no such image, if it was not built
    FROM berth's, or FROM the wrong one of the two.
    """
    if name is None:
        require_images([str(image)], profile)
        name = image_name(str(image), profile)
        found = find_built_image(client, name)
        return LocalImage(name, str(found.id), str(image), profile, derived=False, attrs=found.attrs)
    found = find_built_image(client, name)
    its_image, its_profile = found.labels.get(labels.KIT, ""), found.labels.get(labels.PROFILE, "")
    if its_image not in pins.IMAGES or not its_profile:
        begin = image_name(image or pins.IMAGES[0], profile)
        raise UserError(
            f"{name} was not built FROM one of berth's images (they have the labels {labels.KIT} and "
            f"{labels.PROFILE}): begin its Dockerfile with `FROM {begin}`, and build it again."
        )
    if image not in (None, its_image):
        raise UserError(
            f"{name} was built FROM {repository_name(its_image)}, but this command needs "
            f"{repository_name(str(image))}: name another image."
        )
    if profile not in (pins.DEFAULT_PROFILE, its_profile):
        raise UserError(
            f"{name} was built FROM the profile {its_profile}, not {profile}: leave out --profile, the image's label "
            "names it."
        )
    # One of berth's images that `docker tag` renamed still has the name from its build.
    derived = not any(is_build_name(tag, found.labels) for tag in found.tags)
    return LocalImage(_known_as(name, found.tags), str(found.id), its_image, its_profile, derived, found.attrs)


def select_images(client: DockerClient, images: Sequence[str], profile: str, name: str | None) -> list[LocalImage]:
    """The images of a command for `train`, `serve` or both: the image `name`, or without a name those of `images` that
    the profile has.
    """
    if name is None:
        return [
            select_image(client, image, profile) for image in pins_file.load().profile(profile).available_images(images)
        ]
    return [select_image(client, images[0] if len(images) == 1 else None, profile, name)]


def _known_as(name: str, tags: list[str]) -> str:
    """The name with its tag: `mytrain` becomes `mytrain:latest`; ids and names with a tag stay."""
    return f"{name}:latest" if f"{name}:latest" in tags and name not in tags else name
