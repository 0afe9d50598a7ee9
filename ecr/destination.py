"""Where a push goes: from the options of the command line to registries and repositories, or why not. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from berth.common import labels
from berth.common.image_names import repository_name
from berth.ecr import names
from berth.ecr.names import EcrRegistry
from berth.ecr.registry.references import Reference
from berth.images.local_image import LocalImage, doubles_problem, is_dirty
from berth.images.selection import other_build

SERVERLESS_BYTES = 10 * 1024**3
"""What SageMaker takes for a serverless endpoint: 10 GiB, unpacked."""
_EXACT = re.compile(r"\d+(?:\.\d+)+-[a-z0-9]+-(?P<revision>[0-9a-f]{12}(?:-dirty)?|none)")
"""The tag of a build, as `LocalImage.exact` makes it."""


@dataclass(frozen=True, slots=True)
class Destination:
    """A repository of a registry; `ecr` is None for a registry that is not AWS's, of which the kit creates nothing."""

    host: str
    repository: str
    ecr: EcrRegistry | None = None

    def reference(self, tag: str = "", digest: str = "") -> Reference:
        return Reference(self.host, self.repository, tag, digest)

    def __str__(self) -> str:
        return f"{self.host}/{self.repository}"


def destinations(
    image: str, registries: Sequence[EcrRegistry], host: str | None, repository: str | None, *, derived: bool = False
) -> list[Destination]:
    """The repositories of one image: in the registry `host`, or in each of AWS's; `{image}` in the name is its own.

    derived: `image` is what the owner of one that is built FROM the kit's calls it.
    """
    name = _name(repository, image, derived=derived)
    if host is None:
        return [Destination(registry.host, name, registry) for registry in registries]
    return [destination_of(host, name)]


def destination_of(host: str, repository: str) -> Destination:
    """A repository of the registry at `host`, which is known as AWS's by its name."""
    return Destination(host, repository, names.parse_host(host))


def name_problems(
    images: Sequence[str], host: str | None, repository: str | None, tags: Sequence[str], *, derived: bool = False
) -> list[str]:
    """What is wrong with the names that were given, a sentence each; derived: as in `destinations`."""
    problems = []
    if unknown := re.search(r"\{(?!image\})[^}]*\}", repository or ""):
        problems.append(f"--repository has {unknown[0]}, and only {{image}} stands for something: train or serve.")
    else:
        for image in images:
            problems += repository_name_problems(host, _name(repository, image, derived=derived))
    if repository is not None and not problems and len(images) > 1 and "{image}" not in repository:
        problems.append(
            f"--repository {repository} would hold both images: write {{image}} where the name differs, such as "
            "team/berth-{image}, or push one image."
        )
    for tag in tags:
        problems += names.tag_problems(tag)
    return list(dict.fromkeys(problems + (names.host_problems(host) if host is not None else [])))


def repository_name_problems(host: str | None, repository: str) -> list[str]:
    """What is wrong with the name of a repository at `host`, or in ECR without one."""
    return names.repository_problems(repository, ecr=host is None or names.parse_host(host) is not None)


def reference_problems(reference: Reference) -> list[str]:
    """What is wrong with an image's whole name, a sentence each."""
    return [
        *names.host_problems(reference.host),
        *repository_name_problems(reference.host, reference.repository),
        *(names.tag_problems(reference.tag) if reference.tag else []),
    ]


def _name(repository: str | None, image: str, *, derived: bool) -> str:
    default = "{image}" if derived else repository_name("{image}")
    return (default if repository is None else repository).replace("{image}", image)


def option_problems(
    host: str | None, regions: Sequence[str], accounts: Sequence[str], of_ecr: Sequence[str] = ()
) -> list[str]:
    """What is wrong with the regions and accounts that were given, a sentence each.

    of_ecr: the options given that set up a repository of ECR's.
    """
    problems = [problem for region in regions for problem in names.region_problems(region)]
    problems += [problem for account in accounts for problem in names.account_problems(account)]
    if host is not None and (regions or accounts):
        problems.append(
            f"--registry {host} names the place by itself, and --region and --account are ECR's: give one or the other."
        )
    if host is not None and names.parse_host(host) is None and of_ecr:
        problems.append(f"{', '.join(of_ecr)} can be set in ECR only, and {host} is another registry: leave it out.")
    return problems


def image_problems(image: LocalImage, tags: Sequence[str]) -> list[str]:
    """Why this image may not be published under these further tags, a sentence each."""
    problems = doubles_problem(image.exact_tag, image.labels)
    if image.derived and not image.exact:
        return [*problems, f"{image.tag} has no name to push it by: `docker tag {image.tag} NAME:TAG` gives it one."]
    if image.derived and is_name_of_a_build(image.exact):
        problems.append(
            f"{image.exact_tag} has the tag of a build of the kit's, which it is not: give it another one with `docker "
            "tag`."
        )
    if tags and image.derived and image.dirty:
        problems.append(
            f"{image.exact_tag} stands on an image of the kit with uncommitted changes in it, so it can't be tagged "
            f"{', '.join(tags)}: commit, build that again and yours FROM it; without --tag it goes under its own name."
        )
    elif tags and image.dirty:
        what = "is of no commit" if image.revision == "none" else "has uncommitted changes in it"
        problems.append(
            f"{image.exact_tag} {what}, so it can't be tagged {', '.join(tags)}: commit, build again, and push that; "
            "without --tag it goes under its own name."
        )
    problems += [
        f"--tag {tag} is the name of another build, which could not be pushed any more: leave it out, this one goes as "
        f"{image.exact}."
        for tag in tags
        if tag != image.exact and _EXACT.fullmatch(tag)
    ]
    return problems


def warnings(image: LocalImage, checkout: str) -> list[str]:
    """What a user should know of an image before it is pushed, a sentence each; checkout: the revision that is here."""
    found = []
    if image.derived:
        found += [f"{image.exact_tag} stands on an image of the kit with uncommitted changes in it."] * image.dirty
    elif said := other_build(image.exact_tag, image.image, image.profile, image.revision, checkout):
        found.append(said)
    if image.image == "serve" and image.size > SERVERLESS_BYTES:
        found.append(
            f"{image.exact_tag} has {image.size / 1e9:.1f} GB unpacked, and serverless endpoints take "
            f"{SERVERLESS_BYTES / 1e9:.1f}: deploy it on instances."
        )
    return found


def is_name_of_a_build(tag: str) -> bool:
    """Whether a tag is the name of a build, be it with uncommitted changes."""
    return _EXACT.fullmatch(tag) is not None


def is_of_a_build(tag: str) -> bool:
    """Whether a tag is the name of one build of one commit, which names nothing else ever."""
    found = _EXACT.fullmatch(tag)
    return found is not None and not is_dirty(found["revision"])


def profile_problem(destination: Destination, tag: str, ours: Mapping[str, str], held: Mapping[str, str]) -> str:
    """Why a tag may not move to the image with the labels `ours` from the one with `held`, which is of another profile
    or is the other image of the kit; empty where it may, or where the labels don't tell.
    """
    (kit, profile), (other, its_profile) = ((each.get(labels.KIT), each.get(labels.PROFILE)) for each in (ours, held))
    if not (kit and profile and other and its_profile):
        return ""
    if kit != other:
        return (
            f"{destination}:{tag} is on the {other} image, which would lose it to the {kit} image: push to another "
            "--repository, or under another tag."
        )
    if profile != its_profile:
        return (
            f"{destination}:{tag} is on the image of profile {its_profile}, which would lose it to that of profile "
            f"{profile}: take a tag per profile, such as {tag}-{profile}."
        )
    return ""


def tag_problem(tag: str, image: LocalImage, destination: Destination, *, immutable: bool) -> str:
    """Why the image can't get a tag that names another image now; empty where the tag may move."""
    if immutable:
        return (
            f"{destination}:{tag} names another image, and the tags of this repository are immutable: push under "
            "another --tag, or use the image that is there."
        )
    if tag == image.exact and not image.dirty and not image.derived:
        return (
            f"{destination}:{tag} names another image, and the tag of a build does not move: use the image that is "
            "there, commit and build again, or push to another --repository."
        )
    return ""
