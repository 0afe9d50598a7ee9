"""Where a push goes: from the options of the command line to registries and repositories, or why not. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from berth.common import labels
from berth.common.image_names import BUILD, is_build_tag, repository_name
from berth.ecr.registry.references import Reference
from berth.ecr.repositories import names
from berth.ecr.repositories.names import EcrRegistry
from berth.images.local_image import LocalImage, doubles_problem
from berth.images.selection import other_build

SERVERLESS_BYTES = 10 * 1024**3
"""What SageMaker takes for a serverless endpoint: 10 GiB, unpacked."""


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
    name = image.build_name
    problems = doubles_problem(name, image.labels)
    if image.derived and not image.push_tag:
        return [*problems, f"{name} has no name to push it by: `docker tag {name} NAME:TAG` gives it one."]
    if image.derived and is_build_tag(image.push_tag):
        problems.append(
            f"{name} was built FROM a build, and is none: a tag that begins with {BUILD} expires in ECR; give it "
            "another one with `docker tag`."
        )
    if tags and image.dirty:
        what = f"{name} contains uncommitted changes, so it can't be tagged {', '.join(tags)}"
        how = "commit, build that again and yours FROM it" if image.derived else "commit, build again, and push that"
        problems.append(f"{what}: {how}; without --tag it is pushed as {image.push_tag}.")
    problems += [
        f"--tag {tag} begins with {BUILD}, which only builds do, and builds expire in ECR: leave it out, this image is "
        f"pushed as {image.push_tag} anyway."
        for tag in tags
        if is_build_tag(tag) and tag != image.push_tag
    ]
    return problems


def warnings(image: LocalImage, checkout: str) -> list[str]:
    """What a user should know of an image before it is pushed, a sentence each; checkout: the revision that is here."""
    name = image.build_name
    found = []
    if image.revision == labels.NO_REVISION:
        found.append(
            f"{name} has no label {labels.SOURCE}.revision: nothing tells which commit it was built from; "
            f"`docker build --label {labels.SOURCE}.revision=COMMIT` or build.py adds it."
        )
    elif image.derived:
        found += [f"{name} was built FROM an image with uncommitted changes."] * image.dirty
    elif said := other_build(name, image.image, image.profile, image.revision, checkout):
        found.append(said)
    if image.image == "serve" and image.size > SERVERLESS_BYTES:
        found.append(
            f"{name} has {image.size / 1e9:.1f} GB unpacked, and serverless endpoints take "
            f"{SERVERLESS_BYTES / 1e9:.1f}: deploy it on instances."
        )
    return found


def immutable_problem(destination: Destination, tag: str, image: LocalImage, holder: str) -> str:
    """Why the image can't get a tag that is immutable; holder: the digest of the image that has it."""
    ways = f"use the image that is there, {destination}@{holder}"
    if image.derived and tag == image.push_tag:
        ways = f"give yours another tag with `docker tag {image.name} NAME:TAG`, or {ways}"
    elif tag != image.push_tag:
        ways = f"push under another --tag, or {ways}"
    return f"{destination}:{tag} names another image, and the tags of this repository are immutable: {ways}."
