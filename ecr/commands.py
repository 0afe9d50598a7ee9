"""The commands of build.py that are about registries: push, promote and uri. Arguments in, a result out."""

import os
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from docker import DockerClient
from rich.markup import escape

from berth.common import engine
from berth.common.console import note, print_json, result, say
from berth.common.errors import UserError, refuse
from berth.ecr import destination, documents, record
from berth.ecr import promote as promotion
from berth.ecr import repository as repositories
from berth.ecr import uri as uris
from berth.ecr.aws import Aws
from berth.ecr.display import showing_blobs, showing_layers
from berth.ecr.names import account_problems
from berth.ecr.push import engine as pushing
from berth.ecr.push import many
from berth.ecr.push.events import ID_LENGTH
from berth.ecr.push.one import Released, open_repositories, repository_lines
from berth.ecr.registry import references
from berth.ecr.registry.hosts import hostname, is_loopback
from berth.ecr.snippet import snippet
from berth.images import build as building
from berth.images import image_tests, layers, pins
from berth.images import local_image as built_images
from berth.images import size as sizing
from berth.images.local_image import doubles_problem
from berth.images.options import (
    DIST,
    DistOption,
    JsonOption,
    NamedImageOption,
    ProfileOption,
    Which,
    WhichArgument,
    command_group,
)
from berth.images.selection import SelectedImage, select_image, select_images

app = command_group()
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")]


@app.command()
def push(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    region: Annotated[
        str | None, typer.Option(metavar="R[,R2…]", help="AWS regions; without it, the one that boto3 finds.")
    ] = None,
    account_id: Annotated[
        str | None, typer.Option("--account", metavar="ID[,ID2…]", help="AWS accounts; without it, your own.")
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Another registry instead of ECR; `docker login` first.")
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(help="The repository's name, berth-{image} without it; {image} is train, serve, or yours."),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="A tag beside the exact one, such as 1.0; may be given many times.")
    ] = None,
    keep: Annotated[
        int, typer.Option(help="Builds of a profile that the repository keeps; releases never expire.")
    ] = documents.KEEP,
    untagged_days: Annotated[int, typer.Option(help="Days after which images without a tag go.")] = documents.DAYS,
    allow_pull: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID|sagemaker", help="Who else may pull: an account, or SageMaker; may be given many times."
        ),
    ] = None,
    kms_key: Annotated[str | None, typer.Option(help="The KMS key of a new repository, instead of AES-256.")] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Change an existing repository whose settings differ.")
    ] = False,
    no_test: Annotated[bool, typer.Option("--no-test", help="Push without running the image's tests first.")] = False,
    image: NamedImageOption = None,
    dry_run: DryRunOption = False,
    dist: DistOption = DIST,
    as_json: JsonOption = False,
) -> None:
    """Push tested images to Amazon ECR or another registry. It ends with the image_uri that estimators take."""
    tags = tuple(tag or ())
    regions, accounts, pullers = _words(region), _words(account_id), allow_pull or []
    settings = {
        "--keep": keep != documents.KEEP,
        "--untagged-days": untagged_days != documents.DAYS,
        "--allow-pull": allow_pull,
        "--kms-key": kms_key,
        "--apply": apply,
    }
    of_ecr = [option for option, given in settings.items() if given]
    client = engine.connect(timeout_s=pushing.SILENCE_S) if image is not None else None
    chosen = [] if client is None else select_images(client, which.images, profile, image)
    derived = any(each.derived for each in chosen)
    titles = [each.repository if derived else each.kit for each in chosen] or which.images
    refuse(
        destination.name_problems([each for each in titles if each], registry, repository, tags, derived=derived),
        destination.option_problems(registry, regions, accounts, of_ecr),
        [] if kms_key is None else repositories.kms_problems(kms_key),
        *(account_problems(puller) for puller in pullers if puller != "sagemaker"),
    )
    wish = many.PushOptions(
        tags=tags,
        lifecycle=documents.lifecycle(keep, untagged_days),
        pull_accounts=tuple(each for each in pullers if each != "sagemaker"),
        sagemaker="sagemaker" in pullers,
        kms_key=kms_key,
        apply=apply,
    )
    client = client or engine.connect(timeout_s=pushing.SILENCE_S)
    chosen = chosen or select_images(client, which.images, profile, None)
    images = [built_images.of_chosen(each) for each in chosen]
    refuse(*(destination.image_problems(each, tags) for each in images))
    aws = Aws()
    registries = [] if registry is not None else aws.registries(regions, accounts)
    places = {
        each: destination.destinations(each.title, registries, registry, repository, derived=each.derived)
        for each in images
    }
    good, failures = many.look(many.jobs(places, wish, aws, say), apply=apply)
    checkout = str(building.revision(pins.ROOT))
    for warning in [warning for each in images for warning in destination.warnings(each, checkout)]:
        say(warning)
    if dry_run:
        if as_json:
            print_json([many.would(job, seen) for job, seen in good])
        else:
            _print_lines(line for _, seen in good for line in seen.lines)
        refuse(failures)
        return
    released: list[Released] = []
    if good and not no_test:
        _test(chosen)
        # Again, for that took minutes.
        good, more = many.look([job for job, _ in good], apply=apply)
        failures += more
    if good:
        try:
            with showing_layers(note, _layer_names(client, images)) as show:
                released, more = many.publish(client, good, dist, wish, say=say, show=show)
        except KeyboardInterrupt:
            say("interrupted; layers that have arrived whole stay in the registry, and the next push sends the others")
            raise
        failures += more
    _print(client, released, as_json)
    refuse(failures)


def _layer_names(client: DockerClient, images: Sequence[built_images.LocalImage]) -> dict[str, str]:
    """What `size` calls the layers, by the digits that the engine calls them by in a push."""
    found: dict[str, str] = {}
    for image in images:
        found |= layers.names_of(client.images.get(image.id).history(), image.diff_ids)
    return {digest.partition(":")[2][:ID_LENGTH]: name for digest, name in found.items()}


def _words(listed: str | None) -> list[str]:
    """What stands between commas or spaces; a list of nothing is one empty word, which nobody takes."""
    return [] if listed is None else re.findall(r"[^,\s]+", listed) or [""]


def _test(chosen: Sequence[SelectedImage]) -> None:
    """UserError where the images' tests fail; what they print goes to stderr, for stdout is the result's."""
    say("testing the images; --no-test leaves that out")
    if chosen[0].derived:
        code = image_tests.run_derived(chosen[0], to_stderr=True)
    else:
        code = image_tests.run([each.kit for each in chosen], chosen[0].profile, to_stderr=True)
    if code != 0:
        raise UserError(f"the images' tests failed with exit code {code}, so nothing was pushed: see above.")


def _print(client: DockerClient, released: list[Released], as_json: bool) -> None:
    if as_json:
        print_json([each.as_dict() for each in released])
        return
    for each in released:
        pushed = each.pushed
        result.print(escape(pushed.image_uri))
        for tag in pushed.tags:
            result.print(escape(f"  {references.Reference(pushed.host, pushed.repository, tag)}"))
        if measured := sizing.kept_size(client, pushed.local_id):
            result.print(f"  {measured.weight}")
        if each.scan is not None:
            found = ", ".join(f"{number} {severity.lower()}" for severity, number in each.scan.items())
            result.print(f"  ECR's scan: {found or 'nothing found'}")
    here = {each.pushed.host: None for each in released if is_loopback(hostname(each.pushed.host))}
    for host in here:
        say(f"{host} is on this machine, from where SageMaker pulls nothing: no estimator is shown.")
    for each in released:
        if each.pushed.host not in here:
            lines = snippet(each.pushed.image, each.pushed.profile, each.pushed.image_uri)
            say(f"\n# {each.pushed.tagged_uri}\n{lines}")


@app.command()
def promote(
    source: Annotated[str, typer.Argument(metavar="FROM", help="An image in a registry, by tag or by digest.")],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The repository, and a tag; without one, that of FROM or of its build.")
    ],
    dry_run: DryRunOption = False,
    dist: DistOption = DIST,
    as_json: JsonOption = False,
) -> None:
    """Copy an image by digest to another repository. It may be in another region or account; no engine is needed."""
    origin, goal = _from_and_to(source, target)
    doors = open_repositories([destination.place_of(each.host, each.repository) for each in (origin, goal)], Aws(), say)
    wanted = many.PushOptions().repository(doors[1].destination)
    tags = [goal.tag or origin.tag] if goal.tag or origin.tag else []
    there, here = (
        promotion.Place(door.registry, each.repository) for door, each in zip(doors, (origin, goal), strict=True)
    )
    if dry_run:
        found = promotion.look(there, origin.version, here, tags)
        known = repositories.found(doors[1].ecr, wanted.name) if wanted is not None else None
        lines = [*repository_lines(doors[1].destination, wanted, known), f"{here}: {found.summary()}"]
        lines += [promotion.tag_line(here, tag, held, found.image.digest) for tag, held in found.tags.items()]
        if as_json:
            digest = found.image.digest
            about = {"image_uri": f"{here}@{digest}", "digest": digest, "tags": list(found.tags), "would": lines}
            print_json(about)
        else:
            _print_lines(lines)
        return
    record.check(dist / record.NAME)
    if wanted is not None:
        known = repositories.found(doors[1].ecr, wanted.name)
        repositories.ensure(doors[1].ecr, wanted, known, apply=False, say=say)
    try:
        with showing_blobs(note) as progress:
            done = promotion.promote(there, origin.version, here, tags, say=say, progress=progress)
    except KeyboardInterrupt:
        say("interrupted; layers that have arrived whole stay in the registry, and the next promotion sends the others")
        raise
    record.keep_copy(done.digest, goal.host, goal.repository, done.tags, dist / record.NAME)
    at = references.Reference(goal.host, goal.repository, digest=done.digest)
    if as_json:
        took = {"bytes_sent": done.bytes_sent, "bytes_there": done.bytes_there}
        print_json({"image_uri": str(at), "digest": done.digest, "tags": done.tags, **took})
    else:
        result.print(escape(str(at)))
        for tag in done.tags:
            result.print(escape(f"  {references.Reference(goal.host, goal.repository, tag)}"))
    say(f"{done.bytes_sent / 1e6:.1f} MB copied, {done.bytes_there / 1e6:.1f} MB were in that registry already")


def _from_and_to(source: str, target: str) -> tuple[references.Reference, references.Reference]:
    """The two arguments of a promotion, taken apart; UserError with everything that is wrong with them."""
    problems: list[str] = []
    found: list[references.Reference] = []
    if "@" in target:
        problems.append(f"TO {target} has a digest, which the copy has by itself: give a tag, or none.")
        target = target.partition("@")[0]
    for what, text in (("FROM", source), ("TO", target)):
        try:
            found.append(references.parse(text, what))
        except UserError as error:
            problems.append(str(error))
            continue
        problems += [f"{what}: {problem}" for problem in destination.reference_problems(found[-1])]
        if what == "FROM" and not found[-1].version:
            problems.append(f"FROM {text} names a repository: give the tag or the digest of the image in it as well.")
    refuse(problems)
    origin, goal = found
    return origin, goal


def _print_lines(lines: Iterable[str]) -> None:
    """What a dry run has to say, each line once."""
    for line in dict.fromkeys(lines):
        result.print(escape(line))


@app.command()
def uri(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    registry: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The place with this in its name, such as a region.")
    ] = None,
    image: NamedImageOption = None,
    dist: DistOption = DIST,
    as_json: JsonOption = False,
) -> None:
    """Print what estimators take as image_uri.

    That is the registry's digest once this build is pushed, ECR's before any other, else the local name. One line for
    each image: of a build that was pushed to several places, --registry says which; --json lists all.
    """
    kept = record.load(dist / record.NAME)
    found: list[dict[str, Any]] = []
    problems: list[str] = []
    notes: list[str] = []
    for name in which.images if image is None else (None if which is Which.all else which.value,):
        local, pushed = _pushed(name, profile, image, kept)
        title = image or str(name)
        problems += uris.choice_problems(title, profile, pushed, registry)
        chosen = uris.narrowed(pushed, registry)
        if chosen and not as_json:
            one = uris.preferred(chosen, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", ""))
            notes += uris.choice(title, chosen, one)
            chosen = [one]
        found += [entry.as_dict() for entry in chosen]
        if local is not None and not pushed:
            found.append(uris.of_the_engine(local))
            notes += doubles_problem(local.exact_tag, local.labels)
    refuse(problems)
    for each in notes:
        say(each)
    if as_json:
        print_json(found)
        return
    for entry in found:
        result.print(escape(entry["image_uri"]))


def _pushed(
    kit: str | None, profile: str, name: str | None, kept: Sequence[record.Pushed]
) -> tuple[built_images.LocalImage | None, list[record.Pushed]]:
    """An image on the engine, and where it was pushed; without the image, or without an engine, the record of the last
    push is what there is, and UserError where that has nothing either.
    """
    try:
        local = built_images.of_chosen(select_image(engine.connect(), kit, profile, name))
    except UserError:
        there = uris.of_an_own_image(name, kept) if name else uris.pushed_places(str(kit), profile, None, kept)
        if not there:
            raise
        return None, there
    return local, uris.pushed_places(local.image, local.profile, local, kept)
