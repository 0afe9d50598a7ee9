"""The commands of build.py that inspect an image's contents: bill, diff and outdated."""

import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from berth.common import engine
from berth.common.console import doing, print_json, result
from berth.common.errors import UserError
from berth.images.inspect import diff, outdated, sbom
from berth.images.network import build_network
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
from berth.images.selection import find_built_image, require_images, select_images

app = command_group()
AllOption = Annotated[bool, typer.Option("--all", help="Show everything.")]


@app.command("bill")
def write_bills(
    which: WhichArgument = Which.all,
    profile: ProfileOption = pins.DEFAULT_PROFILE,
    image: NamedImageOption = None,
    dist: DistOption = DIST,
) -> None:
    """Write the bill of materials of built images. It has each package's version, hash and licence."""
    require_images(which.images, profile, image)
    client = engine.connect()
    for each in select_images(client, which.images, profile, image):
        if not each.push_tag:
            raise UserError(f"{each.name} has no name for its bill: `docker tag {each.name} NAME:TAG` gives it one.")
        with doing(f"{each.name}: reading what is inside") as step:
            bill = sbom.image_bill(client, each.name, step=step)
        path = sbom.write(bill, dist, each.repository, each.push_tag, derived=each.derived)
        result.print(escape(f"{path}  {len(bill.packages)} packages"))


@app.command("diff")
def show_difference(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="An image on this engine: a name or an id.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Another image.")],
    *,
    everything: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the differences between two images. Exit code 1 unless only files' times differ.

    Shows a summary, layers, packages and the first files; with --all every file, including Python's bytecode.
    """
    client = engine.connect()
    for image in (before, after):
        find_built_image(client, image)  # check both before reading, which takes long
    with doing("reading the images") as step:
        one, other = (diff.inspect_image(client, each, step=step) for each in (before, after))
    found = diff.compare(one, other)
    if as_json:
        print_json(asdict(found))
    else:
        result.print(diff.render(found, everything=everything))
    raise typer.Exit(1 if any(diff.unexplained(found)) else 0)


@app.command("outdated")
def show_outdated(
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="The profile; default: all.")] = None,
    osv_url: Annotated[
        str | None, typer.Option(metavar="URL", help="A service with OSV's API to ask for advisories, instead of PyPI.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show known vulnerabilities and Debian's updates.

    Exit code 1 if anything is insecure; 3 if nothing insecure was found, but a service did not
    answer, as on a closed network. `pins` locks again, with the newest versions that
    docker/pins.toml allows.
    """
    if osv_url is not None and not osv_url.startswith(("https://", "http://")):
        raise UserError(f"--osv-url {osv_url!r} is not a URL: give one that begins with https://.")
    all_pins = pins_file.load()
    profiles = list(all_pins.profiles) if profile is None else [all_pins.profile(profile).name]
    with doing("asking for known vulnerabilities") as step:
        found = outdated.find_outdated(all_pins, profiles, build_network.gather(os.environ), osv_url, step=step)
    if as_json:
        print_json(found.as_dict())
    else:
        result.print(outdated.render(found))
    raise typer.Exit(found.exit_code)
