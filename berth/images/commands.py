"""The commands of build.py that are about building images and this machine. Arguments in, a result out."""

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
from berth.images import doctor
from berth.images.build import base, image_tests
from berth.images.build.build import Built, run_build
from berth.images.build.buildkit_log import BuildStep, Progress
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
from berth.images.pins.parts import words_of
from berth.images.probe import probe_machine
from berth.images.selection import require_images, select_images

app = command_group()

MirrorOption = Annotated[
    str | None,
    typer.Option(
        envvar="BERTH_MIRROR",
        metavar="FOLDER|URL",
        help="Where files that are no packages (EFA, SMDDP) are, instead of at their own URLs.",
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
            help="A Debian or Ubuntu image with Python 3.11 instead of the pinned one, such as that of `base`.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART[,PART…]", help="Leave out efa, smddp, gdrcopy or cuda-compat; may be given many times."
        ),
    ] = None,
    mirror: MirrorOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the docker build lines; build and fetch nothing. The files that the lines read (settings of "
            "this network, local wheels) are written, named and kept, so that a line holds when it is pasted.",
        ),
    ] = False,
) -> None:
    """Build images. Their tags are berth-IMAGE:VERSION-PROFILE-REVISION and berth-IMAGE:PROFILE."""
    searching = BackgroundTask(engine.find_client)
    kit = pins_file.load()
    options = BuildOptions(profile, words_of(without or []), base_image, mirror, dry_run)
    with secrets_folder(dry_run=dry_run) as secrets:
        with showing_bytes(note) as show:
            plans = prepare(kit, which.images, options, secrets, say, show)
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
    """Builds one image; a terminal sees a bar and the running step, a log sees a line when a step ends.

    Only for a step that did something: what the cache has is counted at the end. Without a number, for BuildKit runs
    stages side by side, in an order of its own.
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
            help="Only if neither the engine nor a registry has the pinned base; print the name of the one to use.",
        ),
    ] = False,
) -> None:
    """Make a base image of Debian's package archive. For networks without an image registry; wants root."""
    kit = pins_file.load()
    if if_needed:
        result.print(base.base_for_builds(engine.connect(), kit, say))
        return
    made = base.make_base(engine.connect(), kit)
    say(f"made {made.reference} ({made.digest}); builds start from it with --base-image or {base.VARIABLE}:")
    result.print(f"export {base.VARIABLE}={made.reference}")


@app.command("test")
def run_tests(
    which: WhichArgument = Which.all, profile: ProfileOption = pins.DEFAULT_PROFILE, image: NamedImageOption = None
) -> None:
    """Run the image tests on built images. Of an image of yours: that it has lost nothing of the kit's."""
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

    Exit code 1 if an image of the kit's own is over its budget. One on a base of your own is measured, not judged.
    """
    require_images(which.images, profile, image)
    client, kit = engine.connect(), pins_file.load()
    found = []
    for each in select_images(client, which.images, profile, image):
        budget = None if each.derived else budget_of(kit, each.kit, each.profile, each.labels)
        with doing(f"{each.name}: measuring the layers") as step:
            measured = image_size(client, each.name, budget_mb=budget, step=step)
        if not as_json:
            result.print(render_size(measured))
        if budget is None and not each.derived:
            say(f"{each.name} is not compared with a budget: {no_budget(kit, each.profile, each.labels)}.")
        found.append(measured)
    if as_json:
        print_json([asdict(measured) for measured in found])
    refuse(filter(None, map(over_budget, found)))


@app.command("doctor")
def check_machine(context: typer.Context) -> None:
    """Say what this machine lacks, and how to fix it. Exit code 0 if the images can be built here."""
    found = doctor.findings(probe_machine(find_aws=context.obj))  # build.py hands it in
    result.print(doctor.render(found))
    raise typer.Exit(0 if doctor.can_build(found) else 1)


@app.command("clean")
def remove_made(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    keep_images: Annotated[
        bool, typer.Option("--keep-images", help="Remove containers and networks only, no image.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove images of other checkouts as well, unasked.")] = False,
) -> None:
    """Remove the kit's containers, networks and images.

    Images that other checkouts built on this engine go only if you agree.
    """

    def take_others(names: Sequence[str]) -> bool:
        if yes or dry_run or not is_watched():
            return yes
        say(f"built by other checkouts: {', '.join(names)}")
        return typer.confirm("Remove these images as well?", err=True)

    items = remove_folders(dry_run=dry_run)
    for item in items:  # first, for they need no engine
        result.print(escape(str(item)))
    of_engine = remove_all(engine.connect(), dry_run=dry_run, images=not keep_images, take_others=take_others)
    for item in of_engine:
        result.print(escape(str(item)))
    items += of_engine
    gone = sum(not item.kept for item in items)
    say(f"{gone} thing(s) {'would go' if dry_run else 'removed'}")


@app.command("pins")
def render_pins(
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The row of docker/pins.toml to lock again; without it, every one."),
    ] = None,
    no_locks: Annotated[
        bool, typer.Option("--no-locks", help="Render all but the locks, and resolve nothing.")
    ] = False,
    fetch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this: download a file such as smddp-2.6.0 and record its sha256."),
    ] = None,
    mirror: MirrorOption = None,
) -> None:
    """Write locks and all else that docker/pins.toml decides."""
    kit = pins_file.load()
    rows = list(kit.profiles.values()) if profile is None else [kit.profile(profile)]
    if fetch is not None:
        with showing_bytes(note) as show:
            pinned = downloads.fetch_and_pin(kit.file(fetch), pins.PATH, mirror, say, show)
        result.print(f"{pinned.key}  sha256:{pinned.sha256}")
        return
    written = [layer_files.render_dockerfile(kit), layer_files.render_bake(kit)]
    if no_locks:
        written += layer_files.render([row for row in rows if (locks.LOCKS / row.name).exists()], locks.LOCKS)
    else:
        written += locks.lock_again(kit, rows, build_network.gather(os.environ).index.folders)
    for path in written:
        result.print(escape(str(path.relative_to(pins.ROOT))))
