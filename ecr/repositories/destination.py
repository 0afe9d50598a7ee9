"""The repositories of a push, from the command line's options, and problems of options and images. Pure."""

import re
from collections.abc import Sequence

from berth.common import labels
from berth.common.image_names import BUILD, is_build_tag, repository_name
from berth.ecr.registry.references import Reference
from berth.ecr.repositories import names
from berth.ecr.repositories.names import EcrRegistry
from berth.images.local_image import LocalImage, doubles_problem, other_build

SERVERLESS_BYTES = 10 * 1024**3
"""The largest image of a serverless endpoint: 10 GiB, unpacked."""


def destinations(
    image: str, registries: Sequence[EcrRegistry], host: str | None, repository: str | None, *, derived: bool = False
) -> list[Reference]:
    """The repositories of one image: in the registry `host`, or in each of `registries`. `{image}` in `repository` is
    replaced by the image's name.

    derived: whether it is a user's own image, built FROM berth's; `image` is then its name.
    """
    name = _name(repository, image, derived=derived)
    hosts = [registry.host for registry in registries] if host is None else [host]
    return [Reference(each, name) for each in hosts]


def name_problems(
    images: Sequence[str], host: str | None, repository: str | None, tags: Sequence[str], *, derived: bool = False
) -> list[str]:
    """Problems of the given names, a sentence each; derived: as in `destinations`."""
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
    """Problems of a repository's name at `host`, or in ECR without a host."""
    return names.repository_problems(repository, ecr=host is None or names.parse_host(host) is not None)


def reference_problems(reference: Reference) -> list[str]:
    """Problems of an image's name, a sentence each."""
    return [
        *names.host_problems(reference.host),
        *repository_name_problems(reference.host, reference.repository),
        *(names.tag_problems(reference.tag) if reference.tag else []),
    ]


def _name(repository: str | None, image: str, *, derived: bool) -> str:
    default = "{image}" if derived else repository_name("{image}")
    return (default if repository is None else repository).replace("{image}", image)


def option_problems(
    host: str | None, regions: Sequence[str], accounts: Sequence[str], ecr_options: Sequence[str] = ()
) -> list[str]:
    """Problems of the given regions and accounts, a sentence each.

    ecr_options: the given options that only apply to ECR.
    """
    problems = [problem for region in regions for problem in names.region_problems(region)]
    problems += [problem for account in accounts for problem in names.account_problems(account)]
    if host is not None and (regions or accounts):
        problems.append(
            f"--registry {host} can't be combined with --region or --account, which choose a registry in ECR: give "
            "one or the other."
        )
    if host is not None and names.parse_host(host) is None and ecr_options:
        problems.append(
            f"{', '.join(ecr_options)} can only be set in ECR, and {host} is another registry: leave it out."
        )
    return problems


def image_problems(image: LocalImage, tags: Sequence[str]) -> list[str]:
    """Why this image must not be published, or not with these additional tags, a sentence each."""
    name = image.build_name
    problems = doubles_problem(name, image.labels)
    if image.derived and not image.push_tag:
        return [*problems, f"{name} has no name to push it by: give it one with `docker tag {name} NAME:TAG`."]
    if image.derived and is_build_tag(image.push_tag):
        problems.append(
            f"{name} was built FROM a build, but its tag begins with {BUILD}: such images expire in ECR; give it "
            "another tag with `docker tag`."
        )
    if tags and image.dirty:
        what = f"{name} contains uncommitted changes, so it can't be tagged {', '.join(tags)}"
        how = "commit, build that again and yours FROM it" if image.derived else "commit, build again, and push that"
        problems.append(f"{what}: {how}; without --tag it is pushed as {image.push_tag}.")
    problems += [
        f"--tag {tag} begins with {BUILD}, the prefix of builds, which expire in ECR: leave it out, this image is "
        f"pushed as {image.push_tag} anyway."
        for tag in tags
        if is_build_tag(tag) and tag != image.push_tag
    ]
    return problems


def warnings(image: LocalImage, checkout: str) -> list[str]:
    """Warnings about an image before its push, a sentence each; checkout: this checkout's revision."""
    name = image.build_name
    found = []
    if image.revision == labels.NO_REVISION:
        found.append(
            f"{name} has no label {labels.SOURCE}.revision, so its commit is unknown; "
            f"`docker build --label {labels.SOURCE}.revision=COMMIT` or build.py adds it."
        )
    elif image.derived:
        found += [f"{name} was built FROM an image with uncommitted changes."] * image.dirty
    elif warning := other_build(image, checkout):
        found.append(warning)
    if image.image == "serve" and image.size > SERVERLESS_BYTES:
        found.append(
            f"{name} has {image.size / 1e9:.1f} GB unpacked, but serverless endpoints accept at most "
            f"{SERVERLESS_BYTES / 1e9:.1f}: deploy it on instances."
        )
    return found


def immutable_problem(repository: str, tag: str, image: LocalImage, holder: str) -> str:
    """A sentence about an immutable tag of `repository`, HOST/NAME; holder: the digest of the image that has it."""
    ways = f"use the image that is there, {repository}@{holder}"
    if image.derived and tag == image.push_tag:
        ways = f"give yours another tag with `docker tag {image.name} NAME:TAG`, or {ways}"
    elif tag != image.push_tag:
        ways = f"push under another --tag, or {ways}"
    return f"{repository}:{tag} names another image, and the tags of this repository are immutable: {ways}."
