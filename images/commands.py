"""The commands of build.py that are about building images and this machine. Arguments in, a result out."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from berth.common import engine
from berth.common.concurrency import BackgroundTask
from berth.common.console import doing, note, print_json, progress_bar, result, say, showing_bytes
from berth.common.errors import UserError
from berth.images import build as building
from berth.images import build_network, dockerfiles, downloads, image_tests, locks, pins, plan
from berth.images import clean as cleaning
from berth.images import doctor as doctoring
from berth.images import probe as probing
from berth.images import size as sizing
from berth.images.buildkit_log import Progress, Step
from berth.images.options import (
    Image,
    ImageArgument,
    JsonOption,
    NamedImageOption,
    ProfileOption,
    Which,
    WhichArgument,
    commands,
)
from berth.images.selection import select_image, select_images

app = commands()

MirrorOption = Annotated[
    str | None,
    typer.Option(
        envvar="BERTH_MIRROR",
        metavar="FOLDER|URL",
        help="Where files that are no packages (EFA, SMDDP) are, instead of at their own URLs.",
    ),
]


@app.command()
def build(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    base_image: Annotated[
        str | None, typer.Option(help="A Debian or Ubuntu image with Python 3.11 instead of the pinned one.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART", help="efa, smddp, gdrcopy or cuda-compat: built without; may be given many times."
        ),
    ] = None,
    mirror: MirrorOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the docker build lines; build nothing.")] = False,
) -> None:
    """Build images. Their tags are berth-IMAGE:VERSION-PROFILE-REVISION and berth-IMAGE:PROFILE."""
    searching = BackgroundTask(engine.find_client)
    row = pins.load().profile(profile).without(without or [])
    for line in dict.fromkeys(line for image in which.images for line in plan.left_out(row, image)):
        say(line)
    with showing_bytes(note) as show:
        plans = [
            building.prepare(image, row, base_image, mirror=mirror, dry_run=dry_run, say=say, show=show)
            for image in which.images
        ]
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


def _build_one(planned: plan.BuildPlan, client: Path) -> building.Built:
    """Builds one image; a terminal sees a bar and the running step, a log sees a line when a step ends.

    Only for a step that did something: what the cache has is counted at the end. Without a number, for BuildKit runs
    stages side by side, in an order of its own.
    """
    say(f"building {planned.tags[0]}")
    with progress_bar(note, transient=True, disable=not note.is_terminal) as bar:
        task = bar.add_task(planned.image, total=plan.step_count(planned.image, pins.ROOT))

        def show(step: Step, progress: Progress) -> None:
            ended = sum(each.ended for each in progress.layers)
            bar.update(task, completed=ended, description=escape(f"{planned.image}: {step.name}"))
            if step.ended and not step.failed and not step.cached:
                bar.print(escape(f"  {step.name}  {step.seconds:.1f} s"), soft_wrap=True)

        built = building.run(planned, client, show)
    say(f"built {planned.tags[1]}: {built.steps}, {built.seconds:.1f} s; the whole log: {built.log}")
    return built


@app.command("test")
def run_tests(
    which: WhichArgument = Which.all, profile: ProfileOption = pins.DEFAULT_PROFILE, image: NamedImageOption = None
) -> None:
    """Run the image tests on built images. Of an image of yours: that it has lost nothing of the kit's."""
    chosen = select_images(engine.connect(), which.images, profile, image)
    if image is not None and chosen[0].derived:
        raise typer.Exit(image_tests.run_derived(chosen[0]))
    raise typer.Exit(image_tests.run(tuple(each.kit for each in chosen), chosen[0].profile))


@app.command()
def size(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    image: NamedImageOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an image's bytes by layer and by package, and the budget of the kit's own."""
    client = engine.connect()
    found = []
    for each in select_images(client, which.images, profile, image):
        budget = None if each.derived else pins.load().profile(each.profile).budget[each.kit]
        with doing(f"{each.name}: measuring the layers") as step:
            measured = sizing.image_size(client, each.name, budget_mb=budget, step=step)
        if not as_json:
            result.print(sizing.render(measured))
        found.append(asdict(measured))
    if as_json:
        print_json(found)


@app.command()
def doctor() -> None:
    """Say what this machine lacks, and how to mend it. Exit code 0 if the images can be built here."""
    findings = doctoring.findings(probing.probe())
    result.print(doctoring.render(findings))
    raise typer.Exit(0 if doctoring.can_build(findings) else 1)


@app.command()
def shell(image: ImageArgument = Image.train, profile: ProfileOption = pins.DEFAULT_PROFILE) -> None:
    """Open a shell in an image."""
    engine.become_shell(select_image(engine.connect(), image.value, profile).name)


@app.command()
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    keep_images: Annotated[
        bool, typer.Option("--keep-images", help="Remove containers and networks only, no image.")
    ] = False,
) -> None:
    """Remove the containers, networks and images that the kit made."""
    items = cleaning.clean(engine.connect(), dry_run=dry_run, images=not keep_images)
    for item in items:
        result.print(escape(str(item)))
    gone = sum(not item.kept for item in items)
    say(f"{gone} thing(s) {'would go' if dry_run else 'removed'}")


@app.command("pins")
def render_pins(
    profile: Annotated[
        str | None, typer.Option(help="The row of docker/pins.toml to lock again; without it, every one.")
    ] = None,
    no_locks: Annotated[bool, typer.Option("--no-locks", help="Render the Dockerfiles only.")] = False,
    fetch: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this: download a file such as smddp-2.6.0 and record its sha256."),
    ] = None,
    mirror: MirrorOption = None,
) -> None:
    """Bring docker/pins.toml into the Dockerfiles, and lock again. The locks have hashes and are one a profile."""
    kit = pins.load()
    rows = list(kit.profiles.values()) if profile is None else [kit.profile(profile)]
    if fetch is not None:
        with showing_bytes(note) as show:
            pinned = downloads.fetch_and_pin(kit.file(fetch), pins.PATH, mirror, say, show)
        result.print(f"{pinned.key}  sha256:{pinned.sha256}")
        return
    written = dockerfiles.render_dockerfiles(kit)
    if not no_locks:
        written += locks.lock_again(kit, rows, build_network.gather(os.environ).index.folders)
    for path in written:
        result.print(escape(str(path.relative_to(pins.ROOT))))
