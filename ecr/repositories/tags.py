"""Chooses an image's tags in a repository, in which other images may have the wanted ones. It only reads.

A tag never moves from one profile to another, and the tag of a build never moves at all. If it is taken, the image gets
another tag, made of the wanted one, and a line says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from berth.common import labels
from berth.common.image_names import is_build_tag
from berth.ecr.registry import verify
from berth.ecr.registry.manifest import Manifest
from berth.ecr.repositories.names import tag_problems
from berth.ecr.repositories.repository_client import RepositoryClient


@dataclass(frozen=True, slots=True)
class TagOwner:
    """The image that gets a tag.

    digits: distinguish it from other images of its revision; is_manifest: whether a manifest is this very image's.
    """

    labels: Mapping[str, str]
    digits: str
    is_manifest: Callable[[Manifest], bool]


@dataclass(frozen=True, slots=True)
class ChosenTag:
    """A tag for an image. holder: another image that has it now; is_current: this image has it already; line: why it is
    not the wanted tag; problem: why the image can't get it.
    """

    tag: str
    holder: Manifest | None = None
    is_current: bool = False
    line: str = ""
    problem: str = ""

    def effect(self, client: RepositoryClient) -> str:
        """What a push does to this tag of the repository."""
        place = f"{client}:{self.tag}"
        if self.is_current:
            return f"{place} is there already, with this image"
        if self.holder is None:
            return f"{place} will be pushed"
        return f"{place} will move from {self.holder.digest[:19]}"


def choose_tags(client: RepositoryClient, wanted: Sequence[str], owner: TagOwner) -> list[ChosenTag]:
    """A tag for each wanted one, in the same order."""
    return [_choose(client, tag, owner) for tag in dict.fromkeys(wanted)]


def _choose(client: RepositoryClient, wanted: str, owner: TagOwner) -> ChosenTag:
    found = _read_tag(client, wanted, owner)
    if found.holder is None:
        return found
    its_labels = verify.image_labels(client.registry, client.name, found.holder)
    if problem := kit_problem(f"{client}:{wanted}", owner.labels, its_labels):
        return ChosenTag(wanted, found.holder, problem=problem)
    other = alternative(wanted, owner.digits, owner.labels, its_labels)
    if other == wanted:
        return found
    at = f"{client}:{wanted} is on {client}@{found.holder.digest}"
    if is_build_tag(wanted):
        line = f"{at}, another image of the same commit; this image is tagged {other}"
    else:
        line = f"{at}, the image of profile {its_labels.get(labels.PROFILE)}; this image is tagged {other}"
    second = _read_tag(client, other, owner)
    problem = "".join(tag_problems(other))
    if second.holder is not None and not problem:
        its_labels = verify.image_labels(client.registry, client.name, second.holder)
        if alternative(other, owner.digits, owner.labels, its_labels) != other or is_build_tag(other):
            problem = f"{client}:{wanted} and {client}:{other} both name other images: use another tag."
    return ChosenTag(other, second.holder, second.is_current, line, problem)


def _read_tag(client: RepositoryClient, tag: str, owner: TagOwner) -> ChosenTag:
    held = client.registry.manifest(client.name, tag)
    if held is None:
        return ChosenTag(tag)
    return ChosenTag(tag, is_current=True) if owner.is_manifest(held) else ChosenTag(tag, held)


def alternative(tag: str, digits: str, ours: Mapping[str, str], held: Mapping[str, str]) -> str:
    """The tag to use instead of one that another image has; the same tag if it may move.

    ours, held: the labels of the image that gets it, and of the one that has it.
    """
    if is_build_tag(tag):
        return tag if tag.endswith(f"-{digits}") else f"{tag}-{digits}"
    profile, its_profile = ours.get(labels.PROFILE), held.get(labels.PROFILE)
    if profile and its_profile and profile != its_profile:
        return f"{tag}-{profile}"
    return tag


def kit_problem(place: str, ours: Mapping[str, str], held: Mapping[str, str]) -> str:
    """Why a tag can't move between the training and the inference image; empty if both images are the same one."""
    kit, other = ours.get(labels.KIT), held.get(labels.KIT)
    if not kit or not other or kit == other:
        return ""
    return (
        f"{place} is on the {other} image, and would move to the {kit} image: push to another --repository, or use "
        "another tag."
    )
