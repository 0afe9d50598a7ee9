"""The commands of build.py for registries: push, promote and uri."""

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
from berth.ecr import promote, uri
from berth.ecr.display import showing_layers
from berth.ecr.push import many
from berth.ecr.push.events import short_id
from berth.ecr.push.one import PushResult
from berth.ecr.push.options import PushOptions
from berth.ecr.push.preflight import repository_lines
from berth.ecr.registry import references
from berth.ecr.repositories import documents, record, repository
from berth.ecr.repositories.aws import Aws
from berth.ecr.repositories.destination import reference_problems, warnings
from berth.ecr.repositories.names import host_warnings
from berth.ecr.repositories.repository_client import RepositoryClient, open_repositories
from berth.ecr.snippet import estimator_snippet
from berth.images.build import image_tests
from berth.images.build.revision import read_revision
from berth.images.inspect import layers
from berth.images.local_image import LocalImage, doubles_problem
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
from berth.images.pins import pins, pins_file
from berth.images.selection import select_image

app = command_group()

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; change nothing.")]
RegionsOption = Annotated[
    str | None,
    typer.Option("--region", metavar="R[,R2…]", help="AWS regions; default: the one that boto3 finds."),
]
AccountsOption = Annotated[
    str | None, typer.Option("--account", metavar="ID[,ID2…]", help="AWS accounts; default: your own.")
]
RegistryOption = Annotated[
    str | None,
    typer.Option("--registry", metavar="HOST[:PORT]", help="A registry other than ECR; run `docker login` first."),
]
RepositoryOption = Annotated[
    str | None,
    typer.Option(
        "--repository",
        metavar="NAME",
        help="The repository's name; default: berth-{image}, or {image} for your own image. {image} stands for train, "
        "serve or your image's name.",
    ),
]
TagsOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="An additional tag, such as 1.0; may be given many times."),
]
PullersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-pull",
        metavar="ID|sagemaker",
        help="Allow an account, or SageMaker, to pull; may be given many times.",
    ),
]
KmsKeyOption = Annotated[
    str | None, typer.Option(metavar="KEY", help="The KMS key for a new repository; default: AES-256.")
]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Change an existing repository whose settings differ.")]
NoTestOption = Annotated[bool, typer.Option("--no-test", help="Push without running the image's tests first.")]
PlaceOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Choose the copy whose registry or repository contains TEXT, such as a region."),
]


@app.command("push")
def push_images(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    regions: RegionsOption = None,
    accounts: AccountsOption = None,
    host: RegistryOption = None,
    repository_name: RepositoryOption = None,
    tags: TagsOption = None,
    pullers: PullersOption = None,
    kms_key: KmsKeyOption = None,
    apply: ApplyOption = False,
    no_test: NoTestOption = False,
    image: NamedImageOption = None,
    dry_run: DryRunOption = False,
    dist: DistOption = DIST,
    as_json: JsonOption = False,
) -> None:
    """Push tested images to Amazon ECR or another registry. Prints the image_uri for estimators."""
    _push(
        PushOptions(
            images=which.images,
            profile=profile,
            named_image=image,
            regions=_words(regions),
            accounts=_words(accounts),
            host=host,
            repository=repository_name,
            tags=tuple(tags or ()),
            pullers=tuple(pullers or ()),
            kms_key=kms_key,
            apply=apply,
            test=not no_test,
            dry_run=dry_run,
            dist=dist,
            as_json=as_json,
        )
    )


def _words(listed: str | None) -> tuple[str, ...]:
    """The words between commas or spaces. An empty list gives one empty word, so that it is rejected later."""
    return () if listed is None else tuple(re.findall(r"[^,\s]+", listed) or [""])


def _push(options: PushOptions) -> None:
    client, images = many.choose_images(options)
    tasks = many.plan_tasks(options, images, say)
    ready, failures = many.preflight_all(tasks)
    checkout = str(read_revision(pins.ROOT))
    for warning in [
        *host_warnings(options.host or ""),
        *(line for each in images for line in warnings(each, checkout)),
    ]:
        say(warning)
    if options.dry_run:
        if options.as_json:
            print_json([each.as_dict() for each in ready])
        else:
            _print_lines(line for each in ready for line in each.lines)
        refuse(failures)
        return
    if ready and options.test:
        _test(images)
        # Again, because the tests took minutes.
        ready, failures = many.preflight_all(tasks)
    pushed: list[PushResult] = []
    if ready:
        try:
            with showing_layers(note, _layer_names(client, images)) as show:
                pushed, more = many.push_many(client, ready, options.dist, say=say, show=show)
        except KeyboardInterrupt:
            say("interrupted; layers that have arrived whole stay in the registry, and the next push sends the others")
            raise
        failures += more
    _print_pushed(pushed, as_json=options.as_json)
    refuse(failures)


def _layer_names(client: DockerClient, images: Sequence[LocalImage]) -> dict[str, str]:
    """The layers' names as in `size`, by the digits that the engine prints for them in a push."""
    names: dict[str, str] = {}
    for image in images:
        names |= layers.layer_names(client.images.get(image.id).history(), image.diff_ids)
    return {short_id(digest): name for digest, name in names.items()}


def _test(chosen: Sequence[LocalImage]) -> None:
    """Runs the images' tests, unless they passed before; UserError if they fail. Their output goes to stderr, because
    stdout is for results.
    """
    names = " and ".join(each.name for each in chosen)
    if day := image_tests.passed_on(chosen):
        say(f"{names} passed these tests on {day}; `python build.py test` runs them again")
        return
    say(f"testing {names}, which takes minutes; --no-test skips that")
    code = image_tests.run(chosen, to_stderr=True)
    if code != 0:
        raise UserError(f"the images' tests failed with exit code {code}, so nothing was pushed: see above.")


def _print_pushed(results: Sequence[PushResult], *, as_json: bool) -> None:
    if as_json:
        print_json([each.as_dict() for each in results])
        return
    for each in results:
        pushed = each.pushed
        result.print(escape(pushed.image_uri))
        for tag in pushed.tags:
            result.print(escape(f"  {references.Reference(pushed.host, pushed.repository, tag)}"))
    local_hosts = {each.pushed.host: None for each in results if uri.is_on_this_machine(each.pushed)}
    for host in local_hosts:
        say(f"{host} is on this machine, and SageMaker can't pull from it: no estimator is shown.")
    for each in results:
        if each.pushed.host not in local_hosts:
            lines = estimator_snippet(each.pushed.image, each.pushed.profile, each.pushed.image_uri)
            say(f"\n# {each.pushed.tagged_uri}\n{lines}")


@app.command("promote")
def promote_image(
    source: Annotated[str, typer.Argument(metavar="FROM", help="An image in a registry, by tag or by digest.")],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="HOST/NAME[:TAG]; default tag: FROM's, or that of its build.")
    ],
    dry_run: DryRunOption = False,
    dist: DistOption = DIST,
    as_json: JsonOption = False,
) -> None:
    """Copy an image by digest to another repository. It may be in another region or account; no engine is needed."""
    origin, goal = _from_and_to(source, target)
    from_client, to_client = open_repositories((origin, goal), Aws(), say)
    for warning in host_warnings(goal.host):
        say(warning)
    wanted = None
    if to_client.ecr is not None:
        wanted = repository.WantedRepository(to_client.name, lifecycle=documents.lifecycle_policy())
    tags = [goal.tag or origin.tag] if goal.tag or origin.tag else []
    plan = promote.plan_copy(from_client, origin.version, to_client, tags)  # may fail, so before any change
    if dry_run:
        _print_copy_plan(plan, to_client, wanted, as_json=as_json)
        return
    record.check(dist / record.NAME)
    if wanted is not None:
        state = repository.describe(to_client.ecr, wanted.name)
        repository.ensure(to_client.ecr, wanted, state, apply=False, say=say)
    try:
        with showing_layers(note, {}) as show:
            promoted = promote.copy_image(from_client, to_client, plan, say=say, show=show)
    except KeyboardInterrupt:
        say("interrupted; layers that have arrived whole stay in the registry, and the next promotion sends the others")
        raise
    record.keep_copy(promoted.digest, goal.host, goal.repository, promoted.tags, dist / record.NAME)
    copied = references.Reference(goal.host, goal.repository, digest=promoted.digest)
    if as_json:
        effort = {"bytes_sent": promoted.bytes_sent, "bytes_there": promoted.bytes_there}
        print_json({"image_uri": str(copied), "digest": promoted.digest, "tags": promoted.tags, **effort})
    else:
        result.print(escape(str(copied)))
        for tag in promoted.tags:
            result.print(escape(f"  {references.Reference(goal.host, goal.repository, tag)}"))
    say(f"{promoted.bytes_sent / 1e6:.1f} MB copied, {promoted.bytes_there / 1e6:.1f} MB were in that registry already")


def _print_copy_plan(
    plan: promote.CopyPlan,
    target: RepositoryClient,
    wanted: repository.WantedRepository | None,
    *,
    as_json: bool,
) -> None:
    """Prints the result of a promotion's dry run."""
    state = repository.describe(target.ecr, wanted.name) if wanted is not None else None
    digest = plan.image.digest
    lines = [*repository_lines(target, wanted, state), f"{target}: {plan.summary()}"]
    lines += [line for each in plan.tags for line in promote.tag_lines(target, each)]
    if as_json:
        tags = [each.tag for each in plan.tags]
        print_json({"image_uri": f"{target}@{digest}", "digest": digest, "tags": tags, "would": lines})
    else:
        _print_lines(lines)


def _from_and_to(source: str, target: str) -> tuple[references.Reference, references.Reference]:
    """Parses the arguments FROM and TO; UserError with all their problems."""
    problems: list[str] = []
    parsed: list[references.Reference] = []
    if "@" in target:
        problems.append(f"TO {target} has a digest, but the copy always keeps FROM's: give a tag, or none.")
        target = target.partition("@")[0]
    for what, text in (("FROM", source), ("TO", target)):
        try:
            parsed.append(references.parse(text, what))
        except UserError as error:
            problems.append(str(error))
            continue
        problems += [f"{what}: {problem}" for problem in reference_problems(parsed[-1])]
        if what == "FROM" and not parsed[-1].version:
            problems.append(f"FROM {text} is a repository: add the tag or the digest of an image in it.")
    refuse(problems)
    origin, goal = parsed
    return origin, goal


def _print_lines(lines: Iterable[str]) -> None:
    """Prints the lines of a dry run, each once."""
    for line in dict.fromkeys(lines):
        result.print(escape(line))


@app.command("uri")
def print_uri(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    registry: PlaceOption = None,
    image: NamedImageOption = None,
    dist: DistOption = DIST,
    as_json: JsonOption = False,
) -> None:
    """Print the image_uri for estimators.

    If this build was pushed, that is its digest in ECR or another registry, otherwise the local name. One line for
    each image: of several places ECR comes first. Choose another with --registry, or list all with --json.
    """
    recorded = record.load(dist / record.NAME)
    entries: list[dict[str, Any]] = []
    problems: list[str] = []
    notes: list[str] = []
    named = (None if which is Which.all else which.value,)
    for name in pins_file.load().profile(profile).available_images(which.images) if image is None else named:
        local, pushed = _pushed(name, profile, image, recorded)
        title = image or str(name)
        problems += uri.choice_problems(title, profile, pushed, registry)
        chosen = uri.matching_places(pushed, registry or uri.named_place(image, pushed))
        if chosen and not as_json:
            place = uri.preferred(chosen, os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", ""))
            notes += uri.choice_notes(title, chosen, place)
            chosen = [place]
        entries += [entry.as_dict() for entry in chosen]
        if local is not None and not pushed:
            entries.append(uri.unpushed_entry(local))
            notes += doubles_problem(local.build_name, local.labels)
    refuse(problems)
    for each in notes:
        say(each)
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        result.print(escape(entry["image_uri"]))


def _pushed(
    kit: str | None, profile: str, name: str | None, recorded: Sequence[record.Pushed]
) -> tuple[LocalImage | None, list[record.Pushed]]:
    """An image on the engine, and where it was pushed. Without the image or an engine: None, and the places of its last
    recorded push, or UserError if there is none.
    """
    try:
        local = select_image(engine.connect(), kit, profile, name)
    except UserError:
        places = (
            uri.pushed_places_by_name(name, recorded) if name else uri.pushed_places(str(kit), profile, None, recorded)
        )
        if not places:
            raise
        return None, places
    return local, uri.pushed_places(local.image, local.profile, local, recorded)
