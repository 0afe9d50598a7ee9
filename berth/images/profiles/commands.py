"""The command `profile` of build.py: lists, shows, adds and removes profiles."""

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

app = command_group()
profile_app = command_group("List, show, add and remove profiles. A profile is hardware plus a software set.")
app.add_typer(profile_app, name="profile")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The profile.")]
PackageOption = Annotated[
    list[str] | None,
    typer.Option(metavar="REQUIREMENT", help='A further package, such as "peft==0.15.0"; repeatable.'),
]
ConstraintOption = Annotated[
    list[str] | None,
    typer.Option(metavar="REQUIREMENT", help='A bound for any package, such as "numpy<2"; repeatable.'),
]
EnvironmentOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Environment variable for every Python in the images; repeatable."),
]
DayOption = Annotated[
    str,
    typer.Option(
        metavar="YYYY-MM-DD",
        help="Resolve all other versions as of that day; default: 30 days after the newest version you named.",
    ),
]
ProofOption = Annotated[
    Proof,
    typer.Option(
        metavar="cpu|whole|none",
        help="How the versions are proved, always on the CPU. cpu: with the CPU build of torch. whole: with the "
        "images' own wheels (with CUDA some gigabytes). none: not at all.",
    ),
]


def _version_option(what: str) -> object:
    return typer.Option(metavar="VERSION", help=f"The version of {what}; default: the newest that fits.")


@profile_app.command("list")
def list_profiles(as_json: JsonOption = False) -> None:
    """List the profiles, with versions and the images that are built here."""
    all_pins = pins_file.load()
    images = listing.built_images()
    if as_json:
        print_json([listing.summary(profile, images) for profile in all_pins.profiles.values()])
    else:
        result.print(listing.render_list(all_pins, images))


@profile_app.command("show")
def show_profile(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show all of a profile: versions, budget, the driver it needs and the state of its locks."""
    all_pins = pins_file.load()
    found = listing.details(all_pins, all_pins.profile(name), LOCKS, listing.built_images())
    if as_json:
        print_json(found)
    else:
        result.print(listing.render_details(found))


@profile_app.command("add")
def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new profile's name, which its images' tags contain.")
    ],
    origin: Annotated[
        str, typer.Option("--from", metavar="PROFILE", help="The profile whose hardware and torch to use.")
    ] = pins.DEFAULT_PROFILE,
    transformers: Annotated[str, _version_option("transformers")] = "",
    torch: Annotated[
        str,
        typer.Option(
            metavar="VERSION", help="Another torch than that profile's; the new profile then has its own torch layers."
        ),
    ] = "",
    accelerate: Annotated[str, _version_option("accelerate")] = "",
    datasets: Annotated[str, _version_option("datasets")] = "",
    package: PackageOption = None,
    constraint: ConstraintOption = None,
    env: EnvironmentOption = None,
    day: DayOption = "",
    proof: ProofOption = Proof.cpu,
) -> None:
    """Add a profile. Its versions are first locked, and proved by a small training.

    If this fails or is interrupted, docker/pins.toml and the locks are unchanged.
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
        with doing(f"adding the profile {name}") as step:
            added = add_profile(request, build_network.gather(os.environ), proof, step)
    except KeyboardInterrupt:
        say("docker/pins.toml and the locks are unchanged.")
        raise
    for sentence in added.remarks:
        say(sentence)
    profile, software = added.profile, added.profile.software
    carried = [f"{each} {profile.packages[each]}" for each in ("transformers", "accelerate", "datasets", "torch")]
    say(f"added {name} in {time.monotonic() - began:.0f} s: {', '.join([*carried, *software.requirements])}")
    if commit := commit_commands(name):
        say("commit it before you build: a push refuses --tag for images of uncommitted changes")
        result.print(escape(commit), soft_wrap=True)
    which = "all" if profile.images == pins.IMAGES else " ".join(profile.images)
    result.print(escape(f"python build.py build {which} --profile {name}"))


def commit_commands(name: str) -> str:
    """The commands that commit what `add` wrote for a profile; empty outside git."""
    if read_revision(pins.ROOT).commit == NO_COMMIT:
        return ""
    paths = (pins.PATH, layer_files.DOCKER / "bake.json", LOCKS / name)
    words = " ".join(str(path.relative_to(pins.ROOT)) for path in paths)
    return f"git add {words}\ngit commit -m 'Add the profile {name}' {words}"


@profile_app.command("remove")
def remove(name: NameArgument) -> None:
    """Remove a profile with its locks, and its software set if no other profile uses it."""
    for removed in remove_profile(name):
        result.print(escape(f"removed {removed}"))
    say("Images that were built for it are kept; `docker rmi` removes them.")
