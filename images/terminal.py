"""What the commands of build.py share: where they print, and the arguments that many of them take."""

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from berth.images import pins

note = Console(stderr=True, highlight=False)
"""Progress and errors."""
result = Console(highlight=False, soft_wrap=True)
"""What a command is for, and what a pipe gets."""


def say(text: str) -> None:
    """A line of progress."""
    note.print(escape(text), soft_wrap=True)


class Which(StrEnum):
    """The images that a command is for."""

    train = "train"
    serve = "serve"
    all = "all"

    @property
    def images(self) -> tuple[str, ...]:
        return pins.IMAGES if self is Which.all else (self.value,)


class Image(StrEnum):
    """The image that a command is for."""

    train = "train"
    serve = "serve"


WhichArgument = Annotated[Which, typer.Argument(help="The image: train, serve or all.")]
ImageArgument = Annotated[Image, typer.Argument(help="The image: train or serve.")]
ProfileOption = Annotated[str, typer.Option(help="The row of docker/pins.toml: cpu, cu130 or cu124.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
