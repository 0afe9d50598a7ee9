"""Arguments and options that many commands of build.py share, and the group to which a folder adds its commands."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from berth.images.pins import pins


class Which(StrEnum):
    """The images that a command is for."""

    train = "train"
    serve = "serve"
    all = "all"

    @property
    def images(self) -> tuple[str, ...]:
        return pins.IMAGES if self is Which.all else (self.value,)


WhichArgument = Annotated[Which, typer.Argument(metavar="IMAGE", help="The image: train, serve or all.")]
NamedImageOption = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME", help="An image that you built FROM one of berth's, instead of berth's."),
]
_PROFILES = " or ".join(filter(None, [", ".join(pins.profile_names()[:-1]), *pins.profile_names()[-1:]]))
ProfileOption = Annotated[str, typer.Option(metavar="NAME", help=f"The profile: {_PROFILES}.")]
DistOption = Annotated[
    Path,
    typer.Option(
        envvar="BERTH_DIST",
        metavar="FOLDER",
        help="The folder for images.json and the bills of materials.",
        show_default="dist in the checkout",
    ),
]
DIST = pins.ROOT / "dist"
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]


def command_group(help: str | None = None) -> typer.Typer:
    """The group to which a folder's commands.py adds its commands; build.py reads them from it."""
    return typer.Typer(
        help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
