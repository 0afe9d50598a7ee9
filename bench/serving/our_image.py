"""Our inference image: the options of the programs that measure it, its variants, and the warm-up."""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

from bench.program import positive
from bench.serving import sides
from bench.serving.load import closed_loop
from bench.serving.sides import Side
from berth.common.errors import UserError
from berth.images.pins import pins

SEED = 20
"""The seed of the list of requests, and of the times at which an open loop sends them."""
WARM_UP, WARM_UP_AT_ONCE = 100, 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that several programs share."""
    parser.add_argument("--model", type=Path, required=True, help="a model folder or model.tar.gz")
    parser.add_argument("--image", default=f"berth-serve:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    parser.add_argument(
        *("--environment", "-e"), action="append", default=[], metavar="NAME=VALUE", help="a variable of our container"
    )
    parser.add_argument("--requests", type=positive, default=400, help="requests per load (default: %(default)s)")
    parser.add_argument("--cores", help="cores of server and client, such as 0,1 (default: all)")


def our_sides(options: argparse.Namespace, variants: Sequence[Sequence[str]], scratch: Path) -> list[Side]:
    """Our image and its variants, with their models unpacked in `scratch`."""
    ours = Side("ours", options.image, options.model, sides.parse_environment(options.environment))
    compared = [ours, *(sides.parse_variant(words, ours) for words in variants)]
    if len({side.name for side in compared}) < len(compared):
        raise UserError("two variants have the same name: give each another one.")
    folders = {
        model: sides.model_folder(model, scratch / str(number))
        for number, model in enumerate(dict.fromkeys(side.model for side in compared))
    }
    return [Side(side.name, side.image, folders[side.model], side.environment) for side in compared]


def warm_up(port: int, bodies: Sequence[bytes]) -> None:
    """Send the first 100 requests, 8 at once; fewer are repeated."""
    closed_loop(port, list(itertools.islice(itertools.cycle(bodies), WARM_UP)), WARM_UP_AT_ONCE)
