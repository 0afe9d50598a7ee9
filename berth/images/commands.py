"""The commands of build.py that build, test, measure and remove images, check this machine and write the locks."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from berth.common import engine
from berth.common.concurrency import BackgroundTask
from berth.common.console import doing, is_watched, note, print_json, progress_bar, result, say, showing_bytes
from berth.common.errors import UserError, refuse
from berth.contract.words import counted
from berth.images import doctor
from berth.images.build import base, image_tests
from berth.images.build.buildkit_log import BuildStep, Progress
from berth.images.build.docker_build import Built, run_build
from berth.images.build.plan import BuildPlan, step_count
from berth.images.build.prepare import BuildOptions, prepare, secrets_folder
from berth.images.clean import remove_all, remove_folders
from berth.images.inspect.budget import budget_of, no_budget, over_budget
from berth.images.inspect.size import image_size, render_size
from berth.images.locks import locks
from berth.images.network import build_network, downloads
from berth.images.options import (
    JsonOption,
    NamedImageOption,
    ProfileOption,
    Which,
    WhichArgument,
    command_group,
)
from berth.images.pins import layer_files, pins, pins_file
from berth.images.pins.parts import split_parts
from berth.images.probe import probe_machine
from berth.images.selection import require_images, select_images

app = command_group()

MirrorOption = Annotated[
    str | None,
    typer.Option(
        envvar="BERTH_MIRROR",
        metavar="FOLDER|URL",
        help="Where to get files that are not packages (EFA, SMDDP); default: their own URLs.",
    ),
]


@app.command("build")
def build_images(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    base_image: Annotated[
        str | None,
        typer.Option(
            envvar=base.VARIABLE,
            metavar="NAME",
            help="A Debian or Ubuntu image with Python 3.11 instead of the pinned base, such as the one from `base`.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="PART[,PART…]", help="Leave out efa, smddp, gdrcopy or cuda-compat; repeatable."),
    ] = None,
    mirror: MirrorOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the docker build commands; build and download nothing. The files that the commands read "
            "(network settings, local wheels) are written, listed and kept, so you can paste and run a command.",
        ),
    ] = False,
) -> None:
    """Build images. Their tags are berth-IMAGE:build-VERSION-PROFILE-REVISION and berth-IMAGE:PROFILE."""
    searching = BackgroundTask(engine.find_client)
    all_pins = pins_file.load()
    options = BuildOptions(profile, split_parts(without or []), base_image, mirror, dry_run)
    with secrets_folder(dry_run=dry_run) as secrets:
        with showing_bytes(note) as show:
            plans = prepare(all_pins, which.images, options, secrets, say, show)
        if dry_run:
            for planned in plans:
                result.print(escape(planned.command(str(_client_or_docker(searching)))))
            return
        client = searching.result()
        for planned in plans:
            built = _build_one(planned, client)
            result.print(f"{built.plan.tags[0]}  {built.image_id}")


def _client_or_docker(searching: BackgroundTask[Path]) -> Path:
    try:
        return searching.result()
    except UserError:
        return Path("docker")


def _build_one(planned: BuildPlan, client: Path) -> Built:
    """Builds one image. A terminal shows a bar with the running step; a log gets a line when a step ends.

    Cached steps get no line; the summary counts them. Lines have no step number because BuildKit runs stages in
    parallel.
    """
    say(f"building {planned.tags[0]}")
    with progress_bar(note, transient=True, disable=not note.is_terminal) as bar:
        task = bar.add_task(planned.image, total=step_count(planned.image, pins.ROOT))

        def show(step: BuildStep, progress: Progress) -> None:
            ended = sum(each.ended for each in progress.layers)
            bar.update(task, completed=ended, description=escape(f"{planned.image}: {step.name}"))
            if step.ended and not step.failed and not step.cached:
                bar.print(escape(f"  {step.name}  {step.seconds:.1f} s"), soft_wrap=True)

        built = run_build(planned, client, show)
    say(f"built {planned.tags[1]}: {built.steps}, {built.seconds:.1f} s; the whole log: {built.log}")
    return built


@app.command("base")
def make_base_image(
    if_needed: Annotated[
        bool,
        typer.Option(
            "--if-needed",
            help="Only if neither the engine nor the registry has the pinned base; print the name of the base to use.",
        ),
    ] = False,
) -> None:
    """Make a base image from Debian's package archive. For networks without an image registry; needs root."""
    all_pins = pins_file.load()
    if if_needed:
        result.print(base.base_for_builds(engine.connect(), all_pins, say))
        return
    made = base.make_base(engine.connect(), all_pins)
    say(f"made {made.reference} ({made.digest}); to build from it, use --base-image or set {base.VARIABLE}:")
    result.print(f"export {base.VARIABLE}={made.reference}")


@app.command("test")
def run_tests(
    which: WhichArgument = Which.all, profile: ProfileOption = pins.DEFAULT_PROFILE, image: NamedImageOption = None
) -> None:
    """Run the image tests on built images. For an image of yours: that it still has everything berth needs."""
    require_images(which.images, profile, image)
    chosen = select_images(engine.connect(), which.images, profile, image)
    raise typer.Exit(image_tests.run(chosen))


@app.command("size")
def show_size(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    image: NamedImageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an image's bytes by layer and by package.

    Exit code 1 if one of berth's images is over its budget. An image on another base has no budget.
    """
    require_images(which.images, profile, image)
    client, all_pins = engine.connect(), pins_file.load()
    found = []
    for each in select_images(client, which.images, profile, image):
        budget = None if each.derived else budget_of(all_pins, each.image, each.profile, each.labels)
        with doing(f"{each.name}: measuring the layers") as step:
            measured = image_size(client, each.name, budget_mb=budget, step=step)
        if not as_json:
            result.print(render_size(measured))
        if budget is None and not each.derived:
            say(f"{each.name} is not compared with a budget: {no_budget(all_pins, each.profile, each.labels)}.")
        found.append(measured)
    if as_json:
        print_json([asdict(measured) for measured in found])
    refuse(filter(None, map(over_budget, found)))


@app.command("doctor")
def check_machine(context: typer.Context) -> None:
    """Show what is missing on this machine, and how to fix it. Exit code 0 if images can be built here."""
    found = doctor.findings(probe_machine(find_aws=context.obj))  # build.py sets it
    result.print(doctor.render(found))
    raise typer.Exit(0 if doctor.can_build(found) else 1)


@app.command("clean")
def remove_made(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    keep_images: Annotated[
        bool, typer.Option("--keep-images", help="Remove containers and networks only, no image.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Also remove images of other commits, without asking.")] = False,
) -> None:
    """Remove berth's containers, networks and images.

    Images of commits that are not in this checkout's history are removed only if you agree.
    """

    def take_others(names: Sequence[str]) -> bool:
        if yes or dry_run or not is_watched():
            return yes
        say(f"built from commits that are not in this checkout's history: {', '.join(names)}")
        return typer.confirm("Remove these images as well?", err=True)

    items = remove_folders(dry_run=dry_run)
    for item in items:  # first, because they need no engine
        result.print(escape(str(item)))
    on_engine = remove_all(engine.connect(), dry_run=dry_run, images=not keep_images, take_others=take_others)
    for item in on_engine:
        result.print(escape(str(item)))
    items += on_engine
    gone = sum(not item.kept for item in items)
    say(f"{counted(gone, 'item')} {'would be removed' if dry_run else 'removed'}")


@app.command("pins")
def render_pins(
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The profile of docker/pins.toml to lock; default: all."),
    ] = None,
    no_locks: Annotated[
        bool, typer.Option("--no-locks", help="Write everything but the locks, without resolving versions.")
    ] = False,
    fetch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only download a file such as smddp-2.6.0 and record its sha256."),
    ] = None,
    mirror: MirrorOption = None,
) -> None:
    """Write the locks and files made from docker/pins.toml."""
    all_pins = pins_file.load()
    profiles = list(all_pins.profiles.values()) if profile is None else [all_pins.profile(profile)]
    if fetch is not None:
        with showing_bytes(note) as show:
            pinned = downloads.fetch_and_pin(all_pins.file(fetch), pins.PATH, mirror, say, show)
        result.print(f"{pinned.key}  sha256:{pinned.sha256}")
        return
    written = [layer_files.render_dockerfile(all_pins), layer_files.render_bake(all_pins)]
    if no_locks:
        written += layer_files.render(
            [profile for profile in profiles if (locks.LOCKS / profile.name).exists()], locks.LOCKS
        )
    else:
        written += locks.lock_again(all_pins, profiles, build_network.gather(os.environ).index.folders)
    for path in written:
        result.print(escape(str(path.relative_to(pins.ROOT))))
