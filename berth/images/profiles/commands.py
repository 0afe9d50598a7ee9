"""The command `profile` of build.py: profiles of the user's own."""

import os
import time
from typing import Annotated

import typer
from rich.markup import escape

from berth.common.console import doing, print_json, result, say
from berth.images.build.revision import NO_COMMIT, read_revision
from berth.images.locks.locks import LOCKS
from berth.images.network import build_network
from berth.images.options import JsonOption, command_group
from berth.images.pins import layer_files, pins, pins_file
from berth.images.profiles import listing
from berth.images.profiles.add import add_profile, remove_profile
from berth.images.profiles.proof import Proof
from berth.images.profiles.request import ProfileRequest
from berth.images.scratch import first_signal_only

app = command_group()
profile_app = command_group("List, show, add and remove profiles. A profile is hardware and a set of software.")
app.add_typer(profile_app, name="profile")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The profile.")]
PackageOption = Annotated[
    list[str] | None,
    typer.Option(metavar="REQUIREMENT", help='A further package, such as "peft==0.15.0"; may be given many times.'),
]
ConstraintOption = Annotated[
    list[str] | None,
    typer.Option(metavar="REQUIREMENT", help='A bound of what others ask for, such as "numpy<2"; many times.'),
]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A variable of every Python of its images; many times."),
]
DayOption = Annotated[
    str,
    typer.Option(
        metavar="YYYY-MM-DD",
        help="All else is resolved as of that day; without it, a month after the newest version that is asked for.",
    ),
]
ProofOption = Annotated[
    Proof,
    typer.Option(
        metavar="cpu|whole|none",
        help="How it is proved, on the CPU. cpu: with the CPU build of its torch. whole: with the wheels that "
        "its images get, which with CUDA are some gigabytes, and without it the same. none: nothing is run.",
    ),
]


def _version_option(what: str) -> object:
    return typer.Option(metavar="VERSION", help=f"The version of {what}; without it, the newest that fits.")


@profile_app.command("list")
def list_profiles(as_json: JsonOption = False) -> None:
    """List the profiles, with their versions and which of their images are built here."""
    all_pins = pins_file.load()
    images = listing.built_images(all_pins)
    if as_json:
        print_json([listing.summary(profile, images) for profile in all_pins.profiles.values()])
    else:
        result.print(listing.render_list(all_pins, images))


@profile_app.command("show")
def show_profile(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show all of a profile. That is its versions, its budget, the driver it needs and the state of its locks."""
    all_pins = pins_file.load()
    found = listing.whole(all_pins, all_pins.profile(name), LOCKS, listing.built_images(all_pins))
    if as_json:
        print_json(found)
    else:
        result.print(listing.render_whole(found))


@profile_app.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called; its images' tags have it.")],
    origin: Annotated[
        str, typer.Option("--from", metavar="PROFILE", help="The profile whose hardware and torch it has.")
    ] = pins.DEFAULT_PROFILE,
    transformers: Annotated[str, _version_option("transformers")] = "",
    torch: Annotated[
        str, typer.Option(metavar="VERSION", help="Another torch than that profile's, with layers of its own.")
    ] = "",
    accelerate: Annotated[str, _version_option("accelerate")] = "",
    datasets: Annotated[str, _version_option("datasets")] = "",
    package: PackageOption = None,
    constraint: ConstraintOption = None,
    env: EnvironmentOption = None,
    day: DayOption = "",
    proof: ProofOption = Proof.cpu,
) -> None:
    """Add a profile. Its versions are locked and proved by a small training first.

    What fails or is interrupted leaves docker/pins.toml and the locks as they were.
    """
    versions = {"transformers": transformers, "accelerate": accelerate, "datasets": datasets}
    request = ProfileRequest(
        name,
        origin,
        torch,
        {key: value for key, value in versions.items() if value},
        tuple(package or ()),
        tuple(constraint or ()),
        tuple(env or ()),
        day,
    )
    began = time.monotonic()
    try:
        with first_signal_only(), doing(f"adding the profile {name}") as step:
            added = add_profile(request, build_network.gather(os.environ), proof, step)
    except KeyboardInterrupt:
        say("docker/pins.toml and the locks are as they were.")
        raise
    for sentence in added.remarks:
        say(sentence)
    profile, software = added.profile, added.profile.software
    carried = [f"{each} {profile.packages[each]}" for each in ("transformers", "accelerate", "datasets", "torch")]
    say(f"added {name} in {time.monotonic() - began:.0f} s: {', '.join([*carried, *software.requirements])}")
    if committed := commit_commands(name):
        say("commit it before the build: a push takes no --tag for images of uncommitted changes")
        result.print(escape(committed), soft_wrap=True)
    result.print(escape(f"python build.py build {' '.join(_which(profile.images))} --profile {name}"))


def commit_commands(name: str) -> str:
    """What commits all that `add` has written for a profile; empty outside git."""
    if read_revision(pins.ROOT).commit == NO_COMMIT:
        return ""
    paths = (pins.PATH, layer_files.DOCKER / "bake.json", LOCKS / name)
    words = " ".join(str(path.relative_to(pins.ROOT)) for path in paths)
    return f"git add {words}\ngit commit -m 'Add the profile {name}' {words}"


def _which(images: tuple[str, ...]) -> list[str]:
    return ["all"] if images == pins.IMAGES else list(images)


@profile_app.command("remove")
def remove(name: NameArgument) -> None:
    """Remove a profile. Its row and its locks go, and its software set where no other profile has it."""
    for gone in remove_profile(name):
        result.print(escape(f"removed {gone}"))
    say("Its images are still there, if they were built: `docker rmi` removes them.")
