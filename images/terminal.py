"""What the commands of build.py share: where they print, and the arguments that many of them take."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

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


def counted(number: int, thing: str) -> str:
    """`1 layer`, `2 layers`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def few(names: Sequence[str]) -> str:
    """`a, b, c`, or of more than three the first and the last: `a, …, z`."""
    return ", ".join(names if len(names) < 4 else [names[0], "…", names[-1]])


def print_json(document: Any) -> None:
    """The one document of a command with --json: an array where it is for several images, an object otherwise."""
    result.print_json(json.dumps(document))


@contextmanager
def doing(what: str) -> Iterator[Callable[[str], None]]:
    """Something that takes long: a spinner on a terminal, a line for each step in a log."""
    if note.is_terminal:
        with note.status(escape(what)) as status:
            yield lambda step: status.update(escape(step))
    else:
        say(what)
        yield say


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


WhichArgument = Annotated[Which, typer.Argument(metavar="IMAGE", help="The image: train, serve or all.")]
ImageArgument = Annotated[Image, typer.Argument(metavar="IMAGE", help="The image: train or serve.")]
NamedImageOption = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME", help="An image of yours that is built FROM the kit's, instead of those."),
]
ProfileOption = Annotated[str, typer.Option(help="The row of docker/pins.toml: cpu, cu130 or cu124.")]
DistOption = Annotated[
    Path,
    typer.Option(envvar="BERTH_DIST", metavar="FOLDER", help="Where images.json and the bills of materials are kept."),
]
DIST = pins.ROOT / "dist"
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document, for programs.")]


def commands(help: str | None = None) -> typer.Typer:
    """Where a room's commands.py registers its commands; build.py has them all."""
    return typer.Typer(
        help=help, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )
